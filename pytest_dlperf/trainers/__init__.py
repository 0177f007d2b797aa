"""Trainers that ship with the package, so that a suite can measure real training anywhere."""

"""Locks, whole files and YAML; facts of this machine, its CI and checkouts; what is public."""

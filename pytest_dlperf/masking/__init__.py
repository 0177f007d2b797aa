"""Masks secrets in commands, environments and the last words of programs."""

"""Disk access of all rooms: locks, whole files, YAML with line numbers."""

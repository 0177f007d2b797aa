"""What touches disks for everybody: locks, whole files, YAML with line numbers."""

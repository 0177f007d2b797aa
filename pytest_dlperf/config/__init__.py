"""What a person writes: options, system files, cluster files."""

"""What a session has come to, as one value: written as a file, and read back from one."""

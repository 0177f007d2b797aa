"""What a session tells: in the terminal, in a test's failure and in files."""

"""What a log is and holds, said before anybody has declared it."""

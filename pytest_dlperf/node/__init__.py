"""What runs on a node, and is sent there: standard library only, on Python 3.6 or newer."""

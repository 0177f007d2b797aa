"""What runs on a node: programs that are sent there with the modules of ours that they import.

All of it imports the standard library alone and runs on Python 3.6, so that a cluster's own Python
is enough.
"""

"""Accepted numbers of each cluster: read, checked and changed."""

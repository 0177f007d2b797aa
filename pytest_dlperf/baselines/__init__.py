"""Accepted numbers of each cluster: read, held against the cases, and changed."""

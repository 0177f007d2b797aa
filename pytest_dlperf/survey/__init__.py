"""Identify logs, commands and folders before a system file declares them."""

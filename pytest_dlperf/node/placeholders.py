"""Fills in what only the node itself knows of a command: whose it is, and what it is called."""

import os

OWNER = "{uid}:{gid}"
"""The user and the group of the process that runs there, as numbers."""
USER_NAMESPACE = "{userns}"
"""The mapping of users with which Podman leaves that user what it is inside."""
UNIQUE = "{unique}"
"""A name that nothing else there has."""


def filled(arguments: "list[str]", unique: str = "") -> "list[str]":
    """Give a command as it holds here; a placeholder is a whole argument, or all behind ``=``."""
    here = {
        OWNER: f"{os.getuid()}:{os.getgid()}",
        # Root has no user to be kept, and Podman refuses to.
        USER_NAMESPACE: "keep-id" if os.getuid() else "host",
        UNIQUE: unique,
    }
    found = []
    for argument in arguments:
        option, equals, value = argument.rpartition("=")
        found.append(option + equals + here.get(value, value))
    return found

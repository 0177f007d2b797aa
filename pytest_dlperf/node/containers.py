"""What a host alone knows of a container: whose it is, and what its image is made of."""

import hashlib
import os
import re
import subprocess
from typing import Any

OWNER = "{uid}:{gid}"
"""The user and the group of the process that runs there, as numbers."""
USER_NAMESPACE = "{userns}"
"""The mapping of users with which Podman leaves that user what it is inside."""
UNIQUE = "{unique}"
"""A name that nothing else there has."""

_PIECE = 1 << 20
_SHOWN = 12  # as many digits of a digest as people read
_DIGEST = "[0-9a-f]{12}"


def digest_of(probe: "dict[str, Any]") -> "str | None":
    """Tell an image by what its runtime says, a file by its begin, its end and its size.

    ``probe`` has the fields of ``launch.containers.ImageProbe``.
    """
    image = probe["image"]
    try:
        if probe["digest"]:
            told = subprocess.check_output(probe["digest"], stdin=subprocess.DEVNULL)  # noqa: S603
            found = re.search(_DIGEST, told.decode("utf-8", "replace"))
            return found.group(0) if found else None
        if not image.startswith("/") or os.path.isdir(image):
            return None  # a name that the runtime knows, or a folder
        with open(image, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest = hashlib.sha256(str(size).encode("ascii"))
            for begin in (0, max(0, size - _PIECE)):
                file.seek(begin)
                digest.update(file.read(_PIECE))
    except (OSError, subprocess.SubprocessError):
        return None
    return digest.hexdigest()[:_SHOWN]


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

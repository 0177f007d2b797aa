"""What a host alone can do for a container: have its image ready, fill in whose it is.

As a program that is sent to a host it has the image ready. The order is a JSON object on standard
input, the answer one on standard output.
"""

import json
import os
import re
import subprocess
import sys

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from typing import Any

ANSWER = "dlperf-image "
"""Begins the line of the answer."""
OWNER = "{uid}:{gid}"
"""The user and the group of the process that runs there, as numbers."""
USER_NAMESPACE = "{userns}"
"""The mapping of users with which Podman leaves that user what it is inside."""
UNIQUE = "{unique}"
"""A name that nothing else there has."""

_PIECE = 1 << 20
_SHOWN = 12  # as many digits of a digest as people read
_DIGEST = "[0-9a-f]{12}"


def ready_image(wanted: "dict[str, Any]") -> "tuple[str | None, str | None]":
    """Fetch an image that is not there; say what is wrong, and what it is made of.

    ``wanted`` has the fields of ``launch.containers.ImageProbe``.
    """
    image = wanted["image"]
    if not wanted["there"]:
        return _file(image)
    try:
        if _fault(wanted["there"]) is not None:
            fault = _fault(wanted["fetch"])
            if fault is not None:
                return f"the image {image} is not there, and {fault}", None
        told = subprocess.check_output(wanted["digest"], stdin=subprocess.DEVNULL)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        said = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        return "{} does not run there: {}".format(wanted["there"][0], said), None
    found = re.search(_DIGEST, told.decode("utf-8", "replace"))
    return None, found.group(0) if found else None


def _file(image: str) -> "tuple[str | None, str | None]":
    """Tell a file's contents by its begin, its end and its size: an image has many gigabytes."""
    if not image.startswith("/") or os.path.isdir(image):  # noqa: PTH112 - no pathlib
        return None, None  # a name that the runtime knows, or a folder
    import hashlib

    try:
        with open(image, "rb") as file:  # noqa: PTH123 - as above
            size = file.seek(0, os.SEEK_END)
            digest = hashlib.sha256(str(size).encode("ascii"))
            for begin in (0, max(0, size - _PIECE)):
                file.seek(begin)
                digest.update(file.read(_PIECE))
    except OSError as error:
        return f"the image {image}: {os.strerror(error.errno or 0)}", None
    return None, digest.hexdigest()[:_SHOWN]


def _fault(command: "list[str]") -> "str | None":
    """Run a command; say what it has against it."""
    done = subprocess.run(  # noqa: S603, UP022 - what the order says; 3.6 cannot else
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").split("\n")
    last = [line.strip() for line in lines if line.strip()][-1:]
    return "{} ends with {}: {}".format(" ".join(command[:2]), done.returncode, "".join(last))


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


if __name__ == "__main__":
    sys.stdout.write("\n" + ANSWER + json.dumps(ready_image(json.loads(sys.stdin.read()))) + "\n")

"""A control group of its own for what a run starts, where this user may make one.

The kernel then ends all of it at once, however fast it forks, whatever it hides, and whoever of
those that watch over it was killed. That takes version 2 of control groups (Linux 5.14) and a group
that may be divided: root's, or one that was delegated to the user. Elsewhere there is none, nor
where Slurm counts and ends by groups of its own.

It is sent to a node as a part of the supervisor: so it imports the standard library only, and runs
on Python 3.6.
"""

import contextlib
import os


class Grouped:
    """The processes in a group and in those below it."""

    def __init__(self, group: str) -> None:
        """Look into the group of this folder."""
        self._group = group

    def look(self) -> "list[int]":
        """List them; the kernel does not count dead ones."""
        found = []
        for folder, _, _ in os.walk(self._group):
            found += [int(number) for number in _read(folder + "/cgroup.procs").split()]
        return found

    def has(self, process: int) -> bool:
        """Say whether a process is one of them."""
        return process in self.look()


def made_group(name: str) -> "str | None":
    """Make a group below the one of this process, and give its folder; ``None`` where none can."""
    own = _own_folder()
    if own is None or "/slurm" in own:
        return None
    group = own + "/" + name
    try:
        os.mkdir(group)  # noqa: PTH102 - importing pathlib takes long
    except OSError:
        return None
    if _is_writable(group) and os.path.exists(group + "/cgroup.kill"):  # noqa: PTH110 - as above
        return group
    remove_group(group)
    return None


def enter(group: str) -> None:
    """Put this process into a group, and whatever it starts from now on."""
    _write(group + "/cgroup.procs", b"0")


def kill_group(group: str) -> None:
    """Have the kernel kill all that is in a group or below it."""
    _write(group + "/cgroup.kill", b"1")


def remove_group(group: str) -> None:
    """Remove an empty group with those that were made below it."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - as above


def _own_folder() -> "str | None":
    own = [line[3:] for line in _read("/proc/self/cgroup").split("\n") if line.startswith("0::")]
    for line in _read("/proc/self/mountinfo").split("\n"):
        fields = line.split()
        if own and " - cgroup2 " in line:
            root, point = fields[3].rstrip("/"), fields[4]
            folder = point + own[0][len(root) :].rstrip("/")
            # Something else may be mounted above it.
            if own[0].startswith(root + "/") and _is_writable(folder):
                return folder
    return None


def _is_writable(group: str) -> bool:
    return os.access(group, os.W_OK) and os.access(group + "/cgroup.procs", os.W_OK)


def _read(file: str) -> str:
    try:
        with open(file, errors="surrogateescape") as opened:  # noqa: PTH123 - as above
            return opened.read()
    except OSError:
        return ""


def _write(file: str, text: bytes) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(file, os.O_WRONLY)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

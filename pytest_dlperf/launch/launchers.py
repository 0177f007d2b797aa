"""What a launcher is: a way to have a program run on a host, with its standard streams here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.launch.hosts import Host

DEFAULT_PYTHON: Final = "python3"
"""What supervises runs on other hosts, unless the cluster says otherwise."""

# Takes a program of a known length from standard input and runs it. It is one line without single
# quotes, exclamation marks and backslashes, so that any login shell at the other end hands it on.
_BOOTSTRAP: Final = (
    'import os,sys;n=int(sys.argv.pop(1));s=b"";'
    'exec("while len(s)<n:s+=os.read(0,n-len(s))or sys.exit(1)");'
    'exec(compile(s,"pytest-dlperf","exec"))'
)


class Launcher(Protocol):
    """A way to have a program run on a host; plugins may add more (``pytest_dlperf_launchers``).

    The program's standard streams are those of the command that ``command`` gives, and the end of
    the command's standard input has to reach the program as the end of its own.
    """

    @property
    def name(self) -> str:
        """What ``--dlperf-launcher`` calls it."""

    @property
    def python(self) -> str:
        """The Python 3.6 or newer, on the host, that supervises a run there."""

    @property
    def remote(self) -> bool:
        """Whether a network lies between, which may be cut."""

    @property
    def queues(self) -> bool:
        """Whether a host that is busy keeps the command waiting, instead of refusing it."""

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """The hosts with the addresses by which they reach each other.

        Raises:
            BrokenError: Some cannot be found out.
        """

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """The command, to be run here, that runs the program on the host.

        ``alongside`` says that the program does little and need not wait until the host is free.
        """


def sent_program(python: str, source: bytes, *arguments: str) -> list[str]:
    """A program in Python that takes its source from standard input, and then goes on from there.

    Nothing has to be installed where it runs but that Python.
    """
    return [python, "-I", "-S", "-c", _BOOTSTRAP, str(len(source)), *arguments]


@cache
def source_of(file: str) -> bytes:
    """The source of a module that is sent to other hosts."""
    return Path(file).read_bytes()

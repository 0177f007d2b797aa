"""Nodes that are reached with the system's OpenSSH client."""

from __future__ import annotations

import ipaddress
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.launch.launchers import DEFAULT_PYTHON
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.launch.hosts import Host

DEFAULT_COMMAND: Final = ("ssh",)
RESOLVE_LIMIT_S: Final = 20.0
"""How long the client may take to read its configuration."""

# What the user's configuration says of these is not asked: nobody sits there to type, and a host
# that cannot be reached has to be noticed. All else is the user's, host keys and jumps included.
_OPTIONS: Final = (
    "-T",
    "-x",
    "-oBatchMode=yes",
    # A master that is open already is used, but a run must not become one that others wait for.
    "-oControlMaster=no",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=2",
    "-oServerAliveCountMax=3",
    "-oLogLevel=ERROR",
)


@final
class SshLauncher:
    """Starts a node's program on another host, as ``ssh`` from a terminal would.

    The user's whole ssh configuration holds: ProxyJump, agents, ``Match``, known hosts.
    """

    __slots__ = ("_command", "python")

    name = "ssh"
    remote = True
    queues = False

    def __init__(
        self, command: Sequence[str] = DEFAULT_COMMAND, *, python: str = DEFAULT_PYTHON
    ) -> None:
        """Take ``command`` for the client, which may have options of its own."""
        self._command = tuple(command)
        self.python = python

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """The hosts with the addresses that the ssh configuration gives their names.

        Raises:
            BrokenError: The client is not here, or does not take a host's name.
        """
        with ThreadPoolExecutor(max_workers=8) as threads:
            return tuple(threads.map(self._resolved, hosts))

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """The client's command, which hands the program to the login shell of the host."""
        del alongside
        return [*self._command, *_OPTIONS, "--", host.name, shlex.join(program)]

    def _resolved(self, host: Host) -> Host:
        if host.address != host.name.rpartition("@")[2] or _is_address(host.address):
            return host  # the user has said it
        command = [*self._command, "-G", "--", host.name]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own client
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=True,
                stdin=subprocess.DEVNULL,
                timeout=RESOLVE_LIMIT_S,
            )
        except OSError as error:
            raise BrokenError(
                f"cannot start {self._command[0]!r}: {error.strerror}; "
                "--dlperf-ssh names another OpenSSH client"
            ) from error
        except subprocess.CalledProcessError as error:
            raise BrokenError(
                f"{shlex.join(command)}: {error.stderr.strip()}; is --dlperf-ssh right?"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise BrokenError(
                f"{shlex.join(command)}: no answer for {RESOLVE_LIMIT_S:g} s; what does the ssh "
                "configuration run ('Match exec')?"
            ) from error
        words = (line.partition(" ") for line in done.stdout.splitlines())
        address = next((value for key, _, value in words if key == "hostname"), host.address)
        return replace(host, address=address)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

"""Hosts and the nodes of runs on them; reads lists of hosts: users', of host files and Slurm's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import named

_MAX_RANGE: Final = 4096
"""Hosts that one range may give, so that a slip does not fill the memory."""
_HOSTS_SHOWN: Final = 8

_ENTRY: Final = re.compile(
    r"(?P<user>[A-Za-z0-9_.][A-Za-z0-9_.-]*@)?(?P<name>[^\s:@]+)(?::(?P<devices>[1-9][0-9]{0,3}))?"
    r"(?:\s+address=(?P<address>\S+))?"
)
# Nothing that a shell, ssh or mpirun reads as more than a name is let in, and no name can be taken
# for an option.
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_OUTER_COMMA: Final = re.compile(r",(?![^\[\]]*\])")
_SLURM_DEVICES: Final = re.compile(r"(?:[A-Za-z0-9_.:-]+:)?([1-9][0-9]{0,3})")

_ALLOWED: Final = (
    "allowed are host, host:8, user@host:8, node[01-04]:8 and node[01-03,07], separated by commas, "
    "or @FILE alone, where each has a line, on which a host may have address=10.1.2.3; a name has "
    "letters, digits, '.', '_' and '-', and does not begin with '-'"
)


class Host(Struct, frozen=True, kw_only=True):
    """One machine that runs may use.

    ``name`` is what a launcher reaches it by, ``[user@]host``; ``address`` is how the other nodes
    of a run reach it: a DNS name or an IP address, IPv6 without brackets. ``devices`` is None where
    nobody has declared how many it has.
    """

    name: str
    address: str
    devices: int | None = None


class Accelerators(Struct, frozen=True, kw_only=True):
    """The accelerators that a host shows: their ``kind``, and what the host calls each of them.

    Before a look at the host, and where their kind is unknown, they are called by their place.
    ``facts`` are those of each. ``are_mixed``: the host's, hidden ones too, are of several models.
    """

    kind: str | None = None
    ids: tuple[str, ...] = ()
    facts: tuple[Mapping[str, str], ...] = ()
    are_mixed: bool = False

    def names(self, places: Iterable[int]) -> tuple[str, ...]:
        """Say what the host calls some of them."""
        return tuple(self.ids[place] if place < len(self.ids) else str(place) for place in places)


class Node(Struct, frozen=True, kw_only=True):
    """One node of a run: a host that is the run's for a while, and which of its devices.

    ``device_ids`` are the places of its devices among the ``accelerators`` of the host,
    ``locked_devices`` those that no other run may use meanwhile that locks under the same
    ``lock_scope`` there. Its output, errors included, goes to ``log``.

    Once all nodes are reached, it has a ``port`` of its own in this run, ``first_port``, the first
    of as many in a row as there are devices, the same on all nodes, and the run's own ``folder``.
    """

    host: Host
    device_ids: tuple[int, ...]
    accelerators: Accelerators = field(default_factory=Accelerators)
    locked_devices: tuple[int, ...] = ()
    lock_scope: str = ""
    log: Path = Path()
    port: int = 0
    first_port: int = 0
    folder: str = ""

    @property
    def address(self) -> str:
        """How the other nodes reach it, an IPv6 address without brackets."""
        return self.host.address


def parse_hosts(text: str, *, place: str, folder: Path = Path()) -> tuple[Host, ...]:
    """Read a list of hosts, or the host file that ``@FILE`` names, in ``folder`` if relative.

    ``place`` is what gave the list, such as ``--dlperf-hosts``.
    """
    text = text.strip()
    if text.startswith("@"):
        entries = _lines_of(text[1:], place, folder)
    else:
        entries = [(place, entry.strip()) for entry in _OUTER_COMMA.split(text)]
    hosts: list[Host] = []
    seen: dict[str, str] = {}
    for where, entry in entries:
        try:
            found = [*_hosts_of(entry)]
        except ValueError as error:
            raise UsageError(f"{where}: {entry!r} {error}; {_ALLOWED}") from error
        for host in found:
            for name in {host.name.rpartition("@")[2].lower(), host.address.lower()}:
                if name in seen:
                    raise UsageError(f"{where}: {entry!r} gives {name} again, after {seen[name]}")
                seen[name] = f"{entry!r} ({where})"
        hosts += found
    return tuple(hosts)


def slurm_hosts(environment: Mapping[str, str]) -> tuple[Host, ...]:
    """Read the nodes of the Slurm allocation that the process runs in.

    The number of devices is that of the node on which Slurm set it, or what ``--gpus-per-node``
    asked for (salloc runs on no node); ``None`` where no devices were asked for.
    """
    devices = None
    for variable in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):
        if text := environment.get(variable):
            kinds = [_SLURM_DEVICES.fullmatch(kind) for kind in text.split(",")]
            if not all(kinds):
                raise UsageError(f"{variable}: {text!r} is no number of devices, as 8 or a100:8")
            devices = sum(int(kind[1]) for kind in kinds if kind)
            break
    variable = "SLURM_JOB_NODELIST"
    hosts = parse_hosts(environment.get(variable, ""), place=variable)
    return tuple(replace(host, devices=devices) for host in hosts)


def describe_hosts(hosts: Iterable[Host]) -> str:
    """Name hosts for a message: ``gpu01:8, gpu02:8 and 14 more``."""
    return named(
        [
            f"{host.name}{'' if host.devices is None else f':{host.devices}'}"
            f"{'' if host.name.rpartition('@')[2] == host.address else f' ({host.address})'}"
            for host in hosts
        ],
        _HOSTS_SHOWN,
    )


def _lines_of(name: str, place: str, folder: Path) -> list[tuple[str, str]]:
    """Read the entries of a host file, each with its place."""
    try:
        file = folder / Path(name).expanduser()
        text = file.read_text(encoding="utf-8-sig")
    # A name can be no path at all (NUL, a home folder of nobody), and a file no text.
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{place}: the host file {name!r} cannot be read: {reason}") from error
    lines = [line.partition("#")[0].strip() for line in text.split("\n")]
    entries = [(f"{file}:{number}", line) for number, line in enumerate(lines, start=1) if line]
    if not entries:
        raise UsageError(f"{place}: the host file {file} names no host; {_ALLOWED}")
    return entries


def _hosts_of(entry: str) -> Iterator[Host]:
    """Read ``[user@]host[:devices] [address=address]``; a ``ValueError`` says what is wrong."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError("is no host")
    names = [""]
    for number, piece in enumerate(re.split(r"\[([^\[\]]*)\]", match["name"])):
        choices = _numbers(piece) if number % 2 else [piece]
        names = [name + choice for name in names for choice in choices]
    if match["address"] and len(names) > 1:
        raise ValueError("gives one address to several hosts")
    for name in names:
        address = match["address"] or name
        for each in (name, address):
            if not _NAME.fullmatch(each):
                raise ValueError(f"has the host {each!r}, which is not a host name")
        devices = int(match["devices"]) if match["devices"] else None
        yield Host(name=(match["user"] or "") + name, address=address, devices=devices)


def _numbers(text: str) -> list[str]:
    """Write out ``01-03,07``, leading zeros kept."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"has the malformed range {part!r}")
        low, high = match[1], match[2] or match[1]
        if not 0 <= int(high) - int(low) < _MAX_RANGE:
            raise ValueError(f"has the range {part}, which is not one of 1 to {_MAX_RANGE} hosts")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers

"""Reads and writes lists of hosts: those of users, of host files and of Slurm."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_HOSTS: Final = 4096
"""Hosts that one list may give, so that a slip in a range does not fill the memory."""

NODE_LIST_VARIABLE: Final = "SLURM_JOB_NODELIST"
DEVICES_VARIABLE: Final = "SLURM_GPUS_ON_NODE"
ASKED_VARIABLE: Final = "SLURM_GPUS_PER_NODE"
"""The number asked for with ``--gpus-per-node``: salloc sets no other, as it runs on no node."""

_MAX_FILE_SIZE: Final = 1 << 20
_SHOWN: Final = 80  # characters of an entry in a message

_USER: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
# A range has its brackets within a name. Nothing that a shell, ssh or mpirun reads as more than a
# name is let in, and no name can be taken for an option.
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME: Final = 253  # of a name in DNS
_SCOPE: Final = re.compile(r"[A-Za-z0-9_.-]+")
_DEVICES: Final = re.compile(r"[1-9][0-9]{0,3}")
_ASKED: Final = re.compile(r"(?:[A-Za-z0-9_.:-]+:)?([1-9][0-9]{0,3})")  # a count, or kind:count
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
# The number that tells hosts of one kind apart: the last one in front of the domain.
_NUMBERED: Final = re.compile(r"((?:[^@]*@)?[^.@]*?)([0-9]{1,9})([^0-9.]*(?:\..*)?)")

_ALLOWED: Final = (
    "allowed are host, host:8, user@host:8, node[01-04]:8, node[01-03,07] and [fe80::1]:8, "
    "separated by commas, or @FILE alone; a name has letters, digits, '.', '_' and '-', and does "
    "not begin with '-'"
)
_ALLOWED_LINE: Final = (
    "allowed on a line are host, host:8 or host slots=8, user@host, node[01-04] and [fe80::1]; for "
    "one host also address=10.1.2.3; and comments after '#'"
)
_ALLOWED_NODE_LIST: Final = "Slurm writes names and ranges as in gpu[001-003,010],login1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine that runs may use.

    ``name`` is what a launcher reaches it by, ``[user@]host``; ``address`` is how the other nodes
    of a run reach it: a DNS name or an IP address, IPv6 without brackets. ``devices`` is None where
    nobody has declared how many it has.
    """

    name: str
    address: str
    devices: int | None = None


def parse_hosts(text: str, *, place: str, folder: Path | None = None) -> tuple[Host, ...]:
    """Read a list of hosts, or the host file that ``@FILE`` names.

    ``place`` is what gave the list, such as ``--dlperf-hosts``; a relative host file lies in
    ``folder``, or in the working folder.

    Raises:
        UsageError: An entry is malformed, a host is given twice, there is none, or the host file
            cannot be read.
    """
    text = text.strip(" \t\r\n")
    if text.startswith("@"):
        return _read_host_file(text[1:], place, Path() if folder is None else folder)
    if not text:
        raise UsageError(f"{place} names no host; {_ALLOWED}")
    hosts = _Hosts()
    where = _Place(place, _ALLOWED)
    for part in _split(text):
        entry = part.strip(" \t\r\n")
        if not entry:
            raise where.error(text, "has an empty entry")
        hosts.add(_entry_hosts(entry, where), entry, where)
    return hosts.all


def slurm_hosts(environment: Mapping[str, str]) -> tuple[Host, ...]:
    """Read the nodes of the Slurm allocation that the process runs in.

    The number of devices is that of the node on which the variable was set, for Slurm says it of
    no other, or the number that was asked for on each node. ``None`` where no devices were asked
    for.

    Raises:
        UsageError: There is no node list, or it or the number of devices is malformed.
    """
    text = environment.get(NODE_LIST_VARIABLE, "").strip(" \t\r\n")
    where = _Place(NODE_LIST_VARIABLE, _ALLOWED_NODE_LIST)
    if not text:
        raise UsageError(f"{NODE_LIST_VARIABLE} names no node; {_ALLOWED_NODE_LIST}")
    devices = _slurm_devices(environment)
    hosts = _Hosts()
    for entry in _split(text):
        names = _expand(entry, entry, where)
        found = [Host(name=name, address=name, devices=devices) for name in names]
        hosts.add(found, entry, where)
    return hosts.all


def _slurm_devices(environment: Mapping[str, str]) -> int | None:
    """Count the devices that the allocation has on each node, as far as Slurm says."""
    counted = environment.get(DEVICES_VARIABLE)
    if counted is not None:
        where = _Place(DEVICES_VARIABLE, "allowed is an integer from 1 to 9999")
        return _devices(counted, counted, where)
    asked = environment.get(ASKED_VARIABLE)
    if asked is None:
        return None
    where = _Place(ASKED_VARIABLE, "allowed are 8, kind:8 and several of them with commas between")
    kinds = [_ASKED.fullmatch(kind) for kind in asked.split(",")]
    if not all(kinds):
        raise where.error(asked, "is not a number of devices")
    return sum(int(kind[1]) for kind in kinds if kind)


def describe_hosts(hosts: Iterable[Host]) -> str:
    """Write hosts for a message, neighbours in one range: ``gpu[01-04]:8, login1``.

    ``parse_hosts`` reads it again, unless a host has an address other than its name.
    """
    return ", ".join(
        text
        for key, members in groupby(hosts, _family)
        for text in _describe_family(key, list(members))
    )


class _Place(NamedTuple):
    """The place of an entry and what may stand there, for messages."""

    name: str
    allowed: str

    def error(self, entry: str, reason: str) -> UsageError:
        return UsageError(f"{self.name}: {_shown(entry)} {reason}; {self.allowed}")


class _Hosts:
    """The hosts found so far, none of them twice."""

    def __init__(self) -> None:
        self._hosts: list[Host] = []
        self._seen: dict[tuple[str, str], str] = {}

    @property
    def all(self) -> tuple[Host, ...]:
        return tuple(self._hosts)

    def add(self, hosts: Sequence[Host], entry: str, place: _Place) -> None:
        """Take the hosts of one entry.

        Raises:
            UsageError: One of them is there already, or they are too many.
        """
        if len(self._hosts) + len(hosts) > MAX_HOSTS:
            raise place.error(entry, f"makes more than {MAX_HOSTS} hosts in all")
        for host in hosts:
            name = host.name.rpartition("@")[2]
            for kind, value in (("host", name), ("address", host.address)):
                key = (kind, value.lower())
                if key in self._seen:
                    reason = f"gives the {kind} {value} again; {self._seen[key]} has it already"
                    raise place.error(entry, reason)
                self._seen[key] = f"{_shown(entry)} ({place.name})"
            self._hosts.append(host)


def _read_host_file(name: str, place: str, folder: Path) -> tuple[Host, ...]:
    try:
        file = folder / Path(name).expanduser()
        # A pipe or a device could be read once only, or without end.
        regular = file.is_file()
        content = b""
        if regular:
            with file.open("rb") as stream:
                content = stream.read(_MAX_FILE_SIZE + 1)
        text = content.decode("utf-8-sig")
    # A name can be no path at all (NUL, a home folder of nobody), and a file no text.
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{place}: the host file {_shown(name)} cannot be read: {reason}; {_ALLOWED_LINE}"
        ) from error
    if not regular:
        raise UsageError(f"{place}: there is no host file {_shown(str(file))}; {_ALLOWED_LINE}")
    if len(content) > _MAX_FILE_SIZE:
        raise UsageError(
            f"{place}: {_shown(str(file))} is larger than 1 MiB, so it is not a host file"
        )
    hosts = _Hosts()
    for number, line in enumerate(text.split("\n"), start=1):
        entry = line.partition("#")[0].strip(" \t\r")
        if entry:
            where = _Place(f"{file}:{number}", _ALLOWED_LINE)
            hosts.add(_line_hosts(entry, where), entry, where)
    if not hosts.all:
        raise UsageError(f"{place}: the host file {file} names no host; {_ALLOWED_LINE}")
    return hosts.all


def _line_hosts(line: str, where: _Place) -> list[Host]:
    entry, *settings = re.split(r"[ \t]+", re.sub(r"[ \t]*=[ \t]*", "=", line))
    hosts = _entry_hosts(entry, where)
    given = set()
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in {"slots", "address"}:
            raise where.error(line, f"has the unknown setting {_shown(setting)}")
        if key in given or (key == "slots" and hosts[0].devices is not None):
            thing = "the number of devices" if key == "slots" else "the address"
            raise where.error(line, f"gives {thing} twice")
        given.add(key)
        if key == "slots":
            devices = _devices(value, line, where)
            hosts = [replace(host, devices=devices) for host in hosts]
        elif len(hosts) > 1:
            raise where.error(line, "gives one address to several hosts")
        else:
            hosts = [replace(hosts[0], address=_address(value, line, where))]
    return hosts


def _split(text: str) -> list[str]:
    """Cut at the commas outside of brackets."""
    parts = [""]
    depth = 0
    for character in text:
        if character == "," and depth == 0:
            parts.append("")
            continue
        depth = max(0, depth + {"[": 1, "]": -1}.get(character, 0))
        parts[-1] += character
    return parts


def _entry_hosts(entry: str, where: _Place) -> list[Host]:
    """Read ``[user@]host[:devices]``."""
    user, at, rest = entry.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise where.error(entry, f"has the user {_shown(user)}")
    if bracketed := re.fullmatch(r"\[([^\[\]]*:[^\[\]]*)\](?::(.*))?", rest, re.DOTALL):
        names = [_ip_version_6(bracketed[1], entry, where)]
        declared = bracketed[2]
    else:
        name, colon, number = rest.partition(":")
        if ":" in number:
            reason = "has more than one ':' (an IPv6 address stands in brackets)"
            raise where.error(entry, reason)
        names = _expand(name, entry, where)
        declared = number if colon else None
    devices = None if declared is None else _devices(declared, entry, where)
    return [Host(name=f"{user}{at}{name}", address=name, devices=devices) for name in names]


def _expand(text: str, entry: str, where: _Place) -> list[str]:
    """Write out ``node[01-03,07]``, leading zeros kept."""
    pieces = re.split(r"\[([^\[\]]*)\]", text)
    if any(character in piece for piece in pieces[::2] for character in "[]"):
        raise where.error(entry, "has unbalanced or nested brackets")
    spans = [_spans(piece, entry, where) for piece in pieces[1::2]]
    if prod(sum(map(len, choices)) for choices, _ in spans) > MAX_HOSTS:
        raise where.error(entry, f"makes more than {MAX_HOSTS} hosts")
    numbers = [list(_padded(choices, widths)) for choices, widths in spans]
    names = []
    for chosen in product(*numbers):
        name = pieces[0] + "".join(
            number + piece for number, piece in zip(chosen, pieces[2::2], strict=True)
        )
        _check_name(name, entry, where)
        names.append(name)
    return names


def _spans(text: str, entry: str, where: _Place) -> tuple[list[range], list[int]]:
    """Read ``01-03,07``: the numbers, and how many digits they have at least."""
    spans, widths = [], []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise where.error(entry, f"has the malformed range {_shown(part)}")
        low, high = match[1], match[2] or match[1]
        if len(high) < len(low) or int(high) < int(low):
            raise where.error(entry, f"has the range {part}, which does not go up")
        spans.append(range(int(low), int(high) + 1))
        widths.append(len(low))
    return spans, widths


def _padded(spans: Sequence[range], widths: Sequence[int]) -> Iterator[str]:
    for span, width in zip(spans, widths, strict=True):
        for number in span:
            yield str(number).zfill(width)


def _check_name(name: str, entry: str, where: _Place) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise where.error(entry, f"has the host {_shown(name)}, which is not a host name")
    # Addresses written in other ways ("10.1", "0x7f000001") would be other names of the same host.
    if re.fullmatch(r"(?:0[xX][0-9a-fA-F]*|[0-9]*)(?:\.(?:0[xX][0-9a-fA-F]*|[0-9]*))*", name):
        try:
            ipaddress.IPv4Address(name)
        except ValueError:
            raise where.error(
                entry, f"has the host {_shown(name)}, which is not an IPv4 address"
            ) from None


def _ip_version_6(text: str, entry: str, where: _Place) -> str:
    """Write an IPv6 address in its shortest form, to notice one that is given twice."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise where.error(entry, f"has {_shown(text)}, which is not an IPv6 address") from None
    if address.scope_id is not None and not _SCOPE.fullmatch(address.scope_id):
        raise where.error(entry, f"has {_shown(text)}, which is not an IPv6 address")
    return str(address)


def _address(text: str, entry: str, where: _Place) -> str:
    if ":" in text:
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        return _ip_version_6(bare, entry, where)
    _check_name(text, entry, where)
    return text


def _devices(text: str, entry: str, where: _Place) -> int:
    if not _DEVICES.fullmatch(text):
        reason = f"has {_shown(text)} devices, which is not an integer from 1 to 9999"
        raise where.error(entry, reason)
    return int(text)


def _family(host: Host) -> tuple[str, str, int, int | None]:
    """Return what hosts of one range share; a host that fits in no range has a family alone."""
    match = _NUMBERED.fullmatch(host.name)
    named = host.address == host.name.rpartition("@")[2]
    if match is None or not named or re.fullmatch(r"[0-9.]+|.*:.*", host.address):
        return (host.name, host.address, 0, host.devices)
    return (match[1], match[3], 1, host.devices)


def _describe_family(
    family: tuple[str, str, int, int | None], hosts: Sequence[Host]
) -> Iterator[str]:
    prefix, suffix, numbered, devices = family
    count = "" if devices is None else f":{devices}"
    if not numbered or len(hosts) == 1:
        for host in hosts:
            user, at, name = host.name.rpartition("@")
            shown = f"[{name}]" if ":" in name else name
            other = "" if name == host.address else f" (address {host.address})"
            yield f"{user}{at}{shown}{count}{other}"
        return
    numbers = [host.name[len(prefix) : len(host.name) - len(suffix)] for host in hosts]
    runs: list[list[str]] = []
    for number in numbers:
        if runs and str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][0])) == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    yield f"{prefix}[{ranges}]{suffix}{count}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

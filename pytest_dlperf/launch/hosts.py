"""Reads and writes lists of hosts: those of users, of host files and of Slurm."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping  # noqa: TC003 - read by msgspec
from itertools import groupby, product
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_HOSTS: Final = 4096
"""Hosts that one list may give, so that a slip in a range does not fill the memory."""

_SHOWN: Final = 80  # characters of an entry in a message

_USER: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
# A range has its brackets within a name. Nothing that a shell, ssh or mpirun reads as more than a
# name is let in, and no name can be taken for an option.
_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_SCOPE: Final = re.compile(r"[A-Za-z0-9_.-]+")
_DEVICES: Final = re.compile(r"[1-9][0-9]{0,3}")
_ASKED: Final = re.compile(r"(?:[A-Za-z0-9_.:-]+:)?([1-9][0-9]{0,3})")  # a count, or kind:count
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_OUTER_COMMA: Final = re.compile(r",(?![^\[\]]*\])")
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
    ``facts`` are those of each, as far as its tool tells them by device. ``are_mixed`` says whether
    the host's, hidden ones too, are of several models.
    """

    kind: str | None = None
    ids: tuple[str, ...] = ()
    facts: tuple[Mapping[str, str], ...] = ()
    are_mixed: bool = False

    def names(self, places: Iterable[int]) -> tuple[str, ...]:
        """Say what the host calls some of them."""
        return tuple(self.ids[place] if place < len(self.ids) else str(place) for place in places)


def parse_hosts(text: str, *, place: str, folder: Path = Path()) -> tuple[Host, ...]:
    """Read a list of hosts, or the host file that ``@FILE`` names, in ``folder`` if relative.

    ``place`` is what gave the list, such as ``--dlperf-hosts``.

    Raises:
        UsageError: An entry is malformed, a host is given twice, there is none, or the host file
            cannot be read.
    """
    text = text.strip()
    if text.startswith("@"):
        return _read_host_file(text[1:], place, folder)
    if not text:
        raise UsageError(f"{place} names no host; {_ALLOWED}")
    entries = [entry.strip() for entry in _OUTER_COMMA.split(text)]
    if not all(entries):
        raise UsageError(f"{place}: {_shown(text)} has an empty entry; {_ALLOWED}")
    return _collected([(place, entry) for entry in entries], _entry_hosts, _ALLOWED)


def slurm_hosts(environment: Mapping[str, str]) -> tuple[Host, ...]:
    """Read the nodes of the Slurm allocation that the process runs in.

    The number of devices is that of the node on which Slurm set it, or what ``--gpus-per-node``
    asked for (salloc runs on no node); ``None`` where no devices were asked for.
    """
    place = "SLURM_JOB_NODELIST"
    text = environment.get(place, "").strip()
    if not text:
        raise UsageError(f"{place} names no node; {_ALLOWED_NODE_LIST}")
    devices = None
    for variable, count in (("SLURM_GPUS_ON_NODE", _devices), ("SLURM_GPUS_PER_NODE", _asked)):
        if variable in environment:
            counted = environment[variable]
            try:
                devices = count(counted)
            except ValueError as error:
                raise UsageError(f"{variable}: {_shown(counted)} {error}") from error
            break

    def read(entry: str) -> list[Host]:
        return [Host(name=name, address=name, devices=devices) for name in _expand(entry)]

    entries = [(place, entry) for entry in _OUTER_COMMA.split(text)]
    return _collected(entries, read, _ALLOWED_NODE_LIST)


def describe_hosts(hosts: Iterable[Host]) -> str:
    """Write hosts for a message, neighbours in one range: ``gpu[01-04]:8, login1``.

    ``parse_hosts`` reads it again, unless a host has an address other than its name.
    """
    texts = []
    for (prefix, suffix), parts in groupby(map(_parts, hosts), itemgetter(0, 2)):
        numbers = [number for _, number, _ in parts]
        number = numbers[0] if len(numbers) == 1 else f"[{_ranges(numbers)}]"
        texts.append(f"{prefix}{number}{suffix}")
    return ", ".join(texts)


def _collected(
    entries: Iterable[tuple[str, str]], read: Callable[[str], list[Host]], allowed: str
) -> tuple[Host, ...]:
    """Read entries, each with its place; none may be malformed or give a host again."""
    hosts: list[Host] = []
    seen: dict[tuple[str, str], str] = {}
    for place, entry in entries:
        try:
            found = read(entry)
            _note_new(found, f"{_shown(entry)} ({place})", seen)
        except ValueError as error:
            raise UsageError(f"{place}: {_shown(entry)} {error}; {allowed}") from error
        hosts += found
        if len(hosts) > MAX_HOSTS:
            reason = f"makes more than {MAX_HOSTS} hosts in all"
            raise UsageError(f"{place}: {_shown(entry)} {reason}; {allowed}")
    return tuple(hosts)


def _note_new(hosts: Sequence[Host], entry: str, seen: dict[tuple[str, str], str]) -> None:
    for host in hosts:
        for kind, value in (("host", host.name.rpartition("@")[2]), ("address", host.address)):
            key = (kind, value.lower())
            if key in seen:
                raise ValueError(f"gives the {kind} {value} again; {seen[key]} has it already")
            seen[key] = entry


def _read_host_file(name: str, place: str, folder: Path) -> tuple[Host, ...]:
    try:
        file = folder / Path(name).expanduser()
        # A pipe or a device could be read once only, or without end.
        text = file.read_text(encoding="utf-8-sig") if file.is_file() else None
    # A name can be no path at all (NUL, a home folder of nobody), and a file no text.
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"{place}: the host file {_shown(name)} cannot be read: {reason}; {_ALLOWED_LINE}"
        ) from error
    if text is None:
        raise UsageError(f"{place}: there is no host file {_shown(str(file))}; {_ALLOWED_LINE}")
    lines = [line.partition("#")[0].strip() for line in text.split("\n")]
    entries = [(f"{file}:{number}", line) for number, line in enumerate(lines, start=1) if line]
    if not entries:
        raise UsageError(f"{place}: the host file {file} names no host; {_ALLOWED_LINE}")
    return _collected(entries, _line_hosts, _ALLOWED_LINE)


# ------------------------------------------------------------------ entries; a ValueError says why


def _line_hosts(line: str) -> list[Host]:
    """Read ``[user@]host[:devices] [slots=devices] [address=address]``."""
    entry, *settings = re.sub(r"\s*=\s*", "=", line).split()
    hosts = _entry_hosts(entry)
    given = set() if hosts[0].devices is None else {"slots"}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in {"slots", "address"}:
            raise ValueError(f"has the unknown setting {_shown(setting)}")
        if key in given:
            thing = "the number of devices" if key == "slots" else "the address"
            raise ValueError(f"gives {thing} twice")
        given.add(key)
        if key == "slots":
            hosts = [replace(host, devices=_devices(value)) for host in hosts]
        elif len(hosts) > 1:
            raise ValueError("gives one address to several hosts")
        else:
            hosts = [replace(hosts[0], address=_address(value))]
    return hosts


def _entry_hosts(entry: str) -> list[Host]:
    """Read ``[user@]host[:devices]``."""
    user, at, rest = entry.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise ValueError(f"has the user {_shown(user)}")
    if bracketed := re.fullmatch(r"\[([^\[\]]*:[^\[\]]*)\](?::(.*))?", rest, re.DOTALL):
        names = [_ip_version_6(bracketed[1])]
        declared = bracketed[2]
    else:
        name, colon, number = rest.partition(":")
        if ":" in number:
            raise ValueError("has more than one ':' (an IPv6 address stands in brackets)")
        names = _expand(name)
        declared = number if colon else None
    devices = None if declared is None else _devices(declared)
    return [Host(name=f"{user}{at}{name}", address=name, devices=devices) for name in names]


def _expand(text: str) -> list[str]:
    """Write out ``node[01-03,07]``, leading zeros kept."""
    pieces = re.split(r"\[([^\[\]]*)\]", text)
    if any("[" in piece or "]" in piece for piece in pieces[::2]):
        raise ValueError("has unbalanced or nested brackets")
    choices = [_numbers(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    if prod(map(len, choices)) > MAX_HOSTS:
        raise ValueError(f"makes more than {MAX_HOSTS} hosts")
    names = ["".join(chosen) for chosen in product(*choices)]
    for name in names:
        _check_name(name)
    return names


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"has the malformed range {_shown(part)}")
        low, high = match[1], match[2] or match[1]
        if len(high) < len(low) or int(high) < int(low):
            raise ValueError(f"has the range {part}, which does not go up")
        if int(high) - int(low) >= MAX_HOSTS:
            raise ValueError(f"makes more than {MAX_HOSTS} hosts")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"has the host {_shown(name)}, which is not a host name")


def _ip_version_6(text: str) -> str:
    """Write an IPv6 address in its shortest form, to notice one that is given twice."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        address = None
    if address is None or not _SCOPE.fullmatch(address.scope_id or "none"):
        raise ValueError(f"has {_shown(text)}, which is not an IPv6 address")
    return str(address)


def _address(text: str) -> str:
    if ":" in text:
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        return _ip_version_6(bare)
    _check_name(text)
    return text


def _devices(text: str) -> int:
    if not _DEVICES.fullmatch(text):
        raise ValueError(f"has {_shown(text)} devices, which is not an integer from 1 to 9999")
    return int(text)


def _asked(text: str) -> int:
    """Sum what ``--gpus-per-node`` asked for: ``8``, ``a100:8`` or ``a100:4,v100:4``."""
    kinds = [_ASKED.fullmatch(kind) for kind in text.split(",")]
    if not all(kinds):
        raise ValueError("is not a number of devices, such as 8 or kind:8")
    return sum(int(kind[1]) for kind in kinds if kind)


# ------------------------------------------------------------------ for messages


def _parts(host: Host) -> tuple[str, str, str]:
    """Cut a host into the number that tells it from its neighbours and what stands around it."""
    user, at, name = host.name.rpartition("@")
    count = "" if host.devices is None else f":{host.devices}"
    match = _NUMBERED.fullmatch(host.name)
    if match is None or name != host.address or ":" in name:
        shown = f"[{name}]" if ":" in name else name
        other = "" if name == host.address else f" (address {host.address})"
        return f"{user}{at}{shown}{count}{other}", "", ""
    return match[1], match[2], match[3] + count


def _ranges(numbers: Sequence[str]) -> str:
    runs: list[list[str]] = []
    for number in numbers:
        if runs and str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][0])) == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

"""The accelerators of this host: which kind it has, how many, and who uses them.

NVIDIA's tool may hang, fail, print anything, or be another program of that name: then files of the
system say how many there are. Sent to hosts with ``probe``.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_dlperf.node.host_tools import Found, Later, first_ids
from pytest_dlperf.node.vendors import KINDS, Kind

_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""How so many chips of one host lie."""


NOTHING = {
    "kind": None,
    "ids": [],
    "hidden": "",
    "facts": {},
    "each": [],
    "mixed": False,
    "slices": False,
    "used_by": [],
    "refused": None,
    "failed": None,
}  # type: dict[str, Any]
"""What is found where no device is."""


def find_accelerators(only: "str | None", until: float) -> "dict[str, Any]":
    """Look for devices of ``only`` one kind, or of all; say what was found by then.

    ``kind``, ``ids`` and what has ``hidden`` others; ``facts`` of the host, and of ``each`` id;
    whether all, hidden ones too, are ``mixed``: of several models; whether they are ``slices``;
    ``used_by``: processes behind the place of what they use, ``None`` for any; ``refused``: why
    devices cannot be used. Of two kinds that of which there are more is meant, or which comes first
    in the table. ``failed`` is what a tool says that finds none.
    """
    looks = [(kind, Later(kind.find)) for kind in KINDS if only in (None, kind.name)]
    best = dict(NOTHING)
    refused = failed = None
    for kind, look in looks:
        found = look.result(until, Found())
        refused, failed = refused or found.refused, failed or found.failed
        if not found.ids or found.refused:
            continue
        visible, origins, hidden = _visible(kind, found)
        if best["kind"] is None or len(visible) > len(best["ids"]):
            best = dict(
                NOTHING,
                kind=kind.name,
                ids=visible,
                hidden=hidden,
                facts=found.facts,
                each=[found.each.get(one, {}) for one in origins],
                mixed=len({facts.get("device") for facts in found.each.values()}) > 1,
                slices=found.is_slice,
                used_by=_used(found.users, origins),
            )
    if best["ids"]:
        return best
    return dict(NOTHING if refused else best, refused=refused, failed=failed)


def confined(
    kind: "str | None", ids: "Sequence[str]", wanted: "Sequence[int]", *, mixed: bool = False
) -> "dict[str, str]":
    """Give the variables that confine a run to some of the devices that a host shows.

    ``wanted`` are places in ``ids``; ``mixed`` says that these are of several models. Without a
    known kind NVIDIA's variable is taken, which some others read as well.
    """
    row = next((row for row in KINDS if row.name == kind), KINDS[0])
    chosen = [ids[place] if place < len(ids) else str(place) for place in wanted]
    if row.name != "tpu":
        # CUDA counts the fastest first, where nvidia-smi counts by the bus.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if mixed and row.name == "nvidia" else {}
        return dict(order, **{row.variables[0]: ",".join(chosen)})
    if len(chosen) == len(ids):
        return {}  # the library knows best how all of them lie
    found = {row.variables[0]: ",".join(chosen)}
    if len(chosen) in _TPU_BOUNDS:
        found["TPU_CHIPS_PER_PROCESS_BOUNDS"] = _TPU_BOUNDS[len(chosen)]
        found["TPU_PROCESS_BOUNDS"] = "1,1,1"
    return found


def _used(
    users: "Sequence[tuple[str | None, str]]", visible: "Sequence[str]"
) -> "list[tuple[int | None, str]]":
    """Keep the processes that use what is visible, or something that is not known."""
    found = []  # type: list[tuple[int | None, str]]
    for one, user in users:
        if one is None or one in visible:
            found.append((None if one is None else visible.index(one), user))
    return list(dict.fromkeys(found))


def _visible(kind: "Kind", found: "Found") -> "tuple[list[str], list[str], str]":
    """Leave out what the environment hides; say which these are among all, and what hides."""
    hidden = []
    ids, origins = found.ids, {}  # type: list[str], dict[str, str]
    variables = kind.variables
    if kind.outer in os.environ:
        hidden.append(kind.outer)
        left = _named(ids, os.environ[kind.outer], {})
        ids = first_ids(len(left))
        origins = {str(place): one for place, one in enumerate(left)}
        variables = variables[:1]
    for variable in variables:
        if variable in os.environ:
            said = os.environ[variable]
            ids = _named(ids, _listed(said), found.names)
            hidden.append(variable)
            break
    by = ", ".join(f"{name}={os.environ[name]}" for name in hidden)
    return ids, [origins.get(one, one) for one in ids], by


def _listed(said: str) -> str:
    """Write ranges of numbers as lists: ``0-2,5`` as ``0,1,2,5``."""
    if re.search("[^-0-9, ]", said):
        return said
    ranges = re.compile(r"(\d+) *- *(\d+)")
    return ranges.sub(lambda at: ",".join(map(str, range(int(at[1]), int(at[2]) + 1))), said)


def _named(ids: "list[str]", said: str, names: "Mapping[str, str]") -> "list[str]":
    """Keep what a list names, up to what is no device or there twice, as the libraries do."""
    if said.strip().lower() == "all":
        return ids
    found = []  # type: list[str]
    for word in (part.strip() for part in said.split(",")):
        one = names.get(word, word)
        if one not in ids or one in found:
            break
        found.append(one)
    return found

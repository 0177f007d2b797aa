"""The accelerators of this host: which kind it has, how many, and who uses them.

What files of the system say is known at once, and what the vendor's tool says goes before it. A
tool may hang, fail, print anything, or be another program of that name: then it has said nothing.
Sent to hosts with ``probe``.
"""

import contextlib
import os
import re
import threading
import time

from pytest_dlperf.node.host_tools import DeviceError, NoDeviceError, first_ids
from pytest_dlperf.node.vendors import KINDS

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pytest_dlperf.node.vendors import Kind

_MAX_MESSAGE = 200  # characters: a tool may print anything
_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""How so many chips of one host lie."""


NOTHING = {
    "kind": None,
    "ids": [],
    "hidden": "",
    "facts": {},
    "each": [],
    "mixed": False,
    "used_by": [],
    "refused": None,
    "failed": None,
}  # type: dict[str, Any]
"""What is found where no device is."""


class AcceleratorQuery:
    """A look at this host's accelerators, in a thread for each kind: some tool may hang."""

    def __init__(self, only: "str | None" = None) -> None:
        """Begin, for ``only`` one kind or for all."""
        self._found = [(kind, {}) for kind in KINDS if only in (None, kind.name)]  # type: list[tuple[Kind, dict[str, Any]]]
        self._threads = [
            threading.Thread(target=_look_at, args=(kind, found), daemon=True)
            for kind, found in self._found
        ]
        for thread in self._threads:
            thread.start()

    def result(self, until: float) -> "dict[str, Any]":
        """Say what was found by then.

        ``kind``, ``ids`` and what has ``hidden`` others; ``facts`` of the host, and of ``each`` id;
        whether all, hidden ones too, are ``mixed``: of several models;
        ``used_by``: processes behind the place of what they use, ``None`` for any; ``refused``:
        what a tool says of devices that cannot be used. Of two kinds that of which there are more
        is meant, or which comes first in the table. ``failed`` is what a tool says that finds none.
        """
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        best = NOTHING
        refused = None
        for kind, found in self._found:
            refused = refused or found.get("refused")
            ids = found.get("ids")
            if not ids or found.get("refused"):
                continue
            by_id = {n: fact for n, fact in found["facts"].items() if not isinstance(fact, str)}
            uuids = dict(by_id.pop("uuid", {}))
            names = dict(by_id.pop("names", {}))
            visible, origins, hidden = _visible(kind, ids, uuids, names)
            if visible and visible[0].startswith("MIG-"):
                visible = visible[:1]  # CUDA shows a process one slice
            if best["kind"] is None or len(visible) > len(best["ids"]):
                each = [
                    {name: fact[one] for name, fact in by_id.items() if fact.get(one)}
                    for one in origins[: len(visible)]
                ]
                facts = {n: f for n, f in found["facts"].items() if f and isinstance(f, str)}
                best = {
                    "kind": kind.name,
                    "ids": visible,
                    "hidden": hidden,
                    "facts": facts,
                    "each": each,
                    "mixed": len(set(by_id.get("device", {}).values())) > 1,
                    "used_by": _used(found.get("used_by", []), origins[: len(visible)], ids, uuids),
                    "refused": None,
                    "failed": None,
                }
        failed = next((found["failed"] for _, found in self._found if "failed" in found), None)
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


def _look_at(kind: "Kind", found: "dict[str, Any]") -> None:
    # No fact is worth a host: a tool may fail in unforeseen ways.
    with contextlib.suppress(Exception):
        found["facts"] = {}
        ids, facts = kind.from_files()
        found["facts"], found["ids"] = facts, ids
    with contextlib.suppress(Exception):
        try:
            listed, facts = kind.from_tool()
        except DeviceError as error:
            found["refused"] = str(error)[:_MAX_MESSAGE]
            return
        except NoDeviceError as error:
            found["failed"] = str(error)[:_MAX_MESSAGE]
            return
        found["facts"] = dict(found["facts"], **{n: fact for n, fact in facts.items() if fact})
        if listed is not None:
            found["ids"] = listed
    with contextlib.suppress(Exception):
        if found.get("ids"):
            found["used_by"] = kind.users()


def _used(
    users: "Sequence[Any]",
    visible: "Sequence[str]",
    ids: "Sequence[str]",
    uuids: "Mapping[str, str]",
) -> "list[tuple[int | None, str]]":
    """Keep the processes that use what is visible, or something that is not said."""
    found = []  # type: list[tuple[int | None, str]]
    for user in users:
        if isinstance(user, str):
            found.append((None, user))
            continue
        for place, one in enumerate(visible):
            whole = one if one in ids else one.partition(".")[0]  # a tile's card
            if user[0] in (one, whole, uuids.get(one)):
                found.append((place, user[1]))
            elif whole not in ids and whole not in uuids:
                found.append((None, user[1]))  # it may be named in another way
    return list(dict.fromkeys(found))


def _visible(
    kind: "Kind", ids: "list[str]", uuids: "Mapping[str, str]", names: "Mapping[str, str]"
) -> "tuple[list[str], list[str], str]":
    """Leave out what the environment hides; say which these are among all, and what hides.

    ``names`` are others of ids.
    """
    hidden = []
    variables = kind.variables
    origins = {}  # type: dict[str, str]
    if kind.outer in os.environ:
        hidden.append(kind.outer)
        left = _named(ids, os.environ[kind.outer], uuids, names)
        ids = first_ids(len(left))
        origins = {str(number): one for number, one in enumerate(left)}
        variables = variables[:1]
    for variable in variables:
        if variable in os.environ:
            said = os.environ[variable]
            ids = _named(ids, _listed(said) if kind.ranges else said, uuids, names)
            hidden.append(variable)
            break
    by = ", ".join(f"{name}={os.environ[name]}" for name in hidden)
    return ids, [origins.get(one, one) for one in ids], by


def _listed(said: str) -> str:
    """Write ranges of numbers as lists: ``0-2,5`` as ``0,1,2,5``."""
    ranges = re.compile(r"(\d+) *- *(\d+)")
    return ranges.sub(lambda at: ",".join(map(str, range(int(at[1]), int(at[2]) + 1))), said)


def _named(
    ids: "list[str]", said: str, uuids: "Mapping[str, str]", names: "Mapping[str, str]"
) -> "list[str]":
    """Keep what a list names, up to what is no device or there twice, as the libraries do."""
    if said.strip().lower() == "all":
        return ids
    found = []  # type: list[str]
    for word in (part.strip() for part in said.split(",")):
        one = names.get(word, word)
        if one not in ids and one not in uuids:
            # The beginning of a UUID does, as far as it is one device's.
            meant = [one for one, uuid in uuids.items() if uuid.startswith(word)]
            is_name = re.match(r"(GPU-|MIG-|\d+\.)", word) is not None
            if not is_name or (uuids and len(meant) != 1):
                break
            one = meant[0] if meant else word
        if one in found:
            break
        found.append(one)
    return found

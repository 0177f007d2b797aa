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

from pytest_dlperf.node.vendors import KINDS

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pytest_dlperf.node.vendors import Kind

_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""How so many chips of one host lie."""


NOTHING = {"kind": None, "ids": [], "hidden": "", "facts": {}, "used_by": []}  # type: dict[str, Any]
"""What is found where no device is."""


class Look:
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
        """Say what was found by then: ``kind``, ``ids``, ``hidden``, ``facts`` and ``used_by``.

        Of two kinds that of which there are more is meant, or which comes first in the table.
        """
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        best = NOTHING
        for kind, found in self._found:
            ids = found.get("ids")
            if not ids:
                continue
            visible, hidden = _visible(kind, ids)
            if best["kind"] is None or len(visible) > len(best["ids"]):
                best = {
                    "kind": kind.name,
                    "ids": visible,
                    "hidden": hidden,
                    "facts": {name: fact for name, fact in dict(found["facts"]).items() if fact},
                    "used_by": found.get("used_by", []),
                }
        return best


def confined(kind: "str | None", ids: "Sequence[str]", wanted: "Sequence[int]") -> "dict[str, str]":
    """Give the variables that confine a run to some of the devices that a host shows.

    ``wanted`` are places in ``ids``. Without a known kind NVIDIA's variable is taken, which some
    others read as well.
    """
    row = next((row for row in KINDS if row.name == kind), KINDS[0])
    chosen = [ids[place] if place < len(ids) else str(place) for place in wanted]
    if row.name != "tpu":
        return {row.variables[0]: ",".join(chosen)}
    if len(chosen) == len(ids):
        return {}  # the library knows best how all of them lie
    found = {row.variables[0]: ",".join(chosen)}
    if len(chosen) in _TPU_BOUNDS:
        found["TPU_CHIPS_PER_PROCESS_BOUNDS"] = _TPU_BOUNDS[len(chosen)]
        found["TPU_PROCESS_BOUNDS"] = "1,1,1"
    return found


def _look_at(kind: "Kind", found: "dict[str, Any]") -> None:
    # No fact is worth a host: a tool may fail in ways that nobody has thought of.
    with contextlib.suppress(Exception):
        found["facts"] = {}
        ids, facts = kind.seen()
        found["facts"], found["ids"] = facts, ids
    with contextlib.suppress(Exception):
        told, facts = kind.told()
        found["facts"] = dict(found["facts"], **{n: fact for n, fact in facts.items() if fact})
        if told is not None:
            found["ids"] = told
    with contextlib.suppress(Exception):
        if found.get("ids"):
            found["used_by"] = kind.users()


def _visible(kind: "Kind", ids: "list[str]") -> "tuple[list[str], str]":
    """Leave out what the environment hides; say by what."""
    hidden = []
    variables = kind.variables
    if kind.outer in os.environ:
        hidden.append(kind.outer)
        ids = [str(place) for place in range(len(_named(ids, os.environ[kind.outer])))]
        variables = variables[:1]
    for variable in variables:
        if variable in os.environ:
            ids = _named(ids, os.environ[variable])
            hidden.append(variable)
            break
    return ids, ", ".join(f"{name}={os.environ[name]}" for name in hidden)


def _named(ids: "list[str]", said: str) -> "list[str]":
    """Keep what a list names, up to what is no device, as the vendors' libraries do."""
    if said.strip().lower() == "all":
        return ids
    found = []
    for word in (part.strip() for part in said.split(",")):
        # Names that are no number, of a device or a part of one, are taken as they are.
        if word not in ids and not re.match(r"(GPU-|MIG-|\d+\.)", word):
            break
        found.append(word)
    return found

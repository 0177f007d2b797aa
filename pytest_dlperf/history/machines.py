"""What sessions were taken on: numbers of two machines make no level."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_dlperf.history.series import OtherMachine
from pytest_dlperf.model.fingerprint import differences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.history.night import Night
    from pytest_dlperf.history.store import History

_FACTS = "SELECT facts FROM fingerprints WHERE digest = :digest"


class Machines:
    """The facts of the machines that a database knows."""

    def __init__(self, history: History) -> None:
        """Ask this database; what it has told is kept."""
        self._history = history
        self._known: dict[str | None, Mapping[str, str]] = {None: {}}
        self._differences: dict[tuple[str | None, str | None], dict[str, tuple[str, str]]] = {}

    def same(self, nights: Sequence[Night]) -> tuple[list[bool], tuple[OtherMachine, ...]]:
        """Say of each night whether it was taken on the machine of the last one, and what was not.

        Facts that only one side knows tell nothing; where nobody looked, as with logs, it is the
        same machine.

        Raises:
            HistoryError: The database cannot be read.
        """
        last = next((night.fingerprint for night in reversed(nights) if night.fingerprint), None)
        others: dict[tuple[tuple[str, tuple[str, str]], ...], list[Night]] = {}
        same = []
        for night in nights:
            facts = self._between(night.fingerprint, last)
            same.append(not facts)
            if facts:
                others.setdefault(tuple(facts.items()), []).append(night)
        return same, tuple(
            OtherMachine(
                first=there[0].started,
                last=there[-1].started,
                sessions=len(there),
                facts=dict(facts),
            )
            for facts, there in others.items()
        )

    def _between(self, one: str | None, other: str | None) -> dict[str, tuple[str, str]]:
        found = self._differences.get((one, other))
        if found is None:
            found = differences(self._of(one), self._of(other))
            self._differences[one, other] = found
        return found

    def _of(self, digest: str | None) -> Mapping[str, str]:
        if digest not in self._known:
            rows = self._history.tuples(_FACTS, {"digest": digest})
            plain: Any = json.loads(rows[0][0]) if rows else {}
            self._known[digest] = plain.get("machine", {})
        return self._known[digest]

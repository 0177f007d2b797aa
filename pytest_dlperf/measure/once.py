"""Each case is measured once per session, whichever of its processes asks first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_dlperf.files.locks import shared_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Measurements:
    """The measurements of a session, each taken once.

    With a folder it is shared with the other processes of the session: the first that needs a case
    measures it, the others wait and read the result.
    """

    folder: Path | None
    _taken: dict[tuple[str, str], Any] = field(default_factory=dict, init=False)

    def once(self, kind: type[T], case_id: str, take: Callable[[], T]) -> T:
        """Return the result of this kind for a case, taken now if there is none."""
        key = kind.__name__, case_id
        if key not in self._taken:
            # No kind's name has a dot, and no case's: two files never have one name.
            self._taken[key] = shared_once(self.folder, f"{case_id}.{kind.__name__}", kind, take)
        taken: T = self._taken[key]
        return taken

"""Each case is measured once per session, whichever of its processes asks first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_dlperf.files.locks import locked, write_whole
from pytest_dlperf.model.plain import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


T = TypeVar("T")


class Measurements:
    """The measurements of a session, each taken once.

    With a folder it is shared with the other processes of the session: whoever needs a case
    first measures it, the others wait and read what came out.
    """

    def __init__(self, shared_folder: Path | None) -> None:
        """Share through ``shared_folder``, or keep to this process."""
        self.folder = shared_folder
        self._taken: dict[tuple[str, str], Any] = {}

    def once(self, kind: type[T], case_id: str, take: Callable[[], T]) -> T:
        """Return what there is of this kind for a case, taken now if nobody has.

        ``kind`` is ``Measurement``, or ``InterleavedRuns`` for runs beside the accepted software.
        """
        key = kind.__name__, case_id
        if key not in self._taken:
            self._taken[key] = (
                take() if self.folder is None else _shared(self.folder, kind, case_id, take)
            )
        taken: T = self._taken[key]
        return taken


def _shared(folder: Path, kind: type[T], case_id: str, take: Callable[[], T]) -> T:
    # No kind's name has a dot, and no case's: two files never have one name.
    name = f"{case_id}.{kind.__name__}"
    file = folder / f"{name}.json"
    with locked(folder / f"{name}.lock"):
        if file.exists():
            return from_plain(kind, json.loads(file.read_text(encoding="utf-8")))
        taken = take()
        write_whole(file, json.dumps(to_plain(taken)))
        return taken

"""Each case is measured once per session, whichever of its processes asks first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_dlperf.locks import locked, write_whole
from pytest_dlperf.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_dlperf.cases import Case


class Measurements:
    """The measurements of a session, each taken once.

    With a folder they are shared with the other processes of the session: whoever needs a case
    first measures it, the others wait and read what came out.
    """

    def __init__(self, shared_folder: Path | None) -> None:
        """Share through ``shared_folder``, or keep to this process."""
        self.folder = shared_folder
        self._taken: dict[str, Measurement] = {}

    def once(self, case: Case, measure: Callable[[], Measurement]) -> Measurement:
        """The measurement of a case, taken now if nobody has."""
        if case.id not in self._taken:
            self._taken[case.id] = (
                measure() if self.folder is None else self._shared(self.folder, case, measure)
            )
        return self._taken[case.id]

    def _shared(self, folder: Path, case: Case, measure: Callable[[], Measurement]) -> Measurement:
        file = folder / f"{case.id}.json"
        with locked(folder / f"{case.id}.lock"):
            if file.exists():
                return Measurement.from_plain(json.loads(file.read_text(encoding="utf-8")))
            measurement = measure()
            write_whole(file, json.dumps(measurement.to_plain()))
            return measurement

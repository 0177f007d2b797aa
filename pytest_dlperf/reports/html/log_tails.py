"""How the logs end that somebody has to look into."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.measure.log_tail import last_lines
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.reports.case_status import standing_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.measurement import Run
    from pytest_dlperf.model.records import CaseResult

LINES: Final = 15
MAX_OF_A_CASE: Final = 3
MAX_CHARACTERS: Final = 400_000
"""Of all tails of a page; beyond, only the places of the logs are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The end of one log; without lines, ``missing`` says why."""

    name: str
    log: str
    text: str
    missing: str


class LogTails:
    """Reads the ends of logs, until the page has enough of them."""

    def __init__(self) -> None:
        """Begin with an empty page."""
        self._characters = 0

    def of(self, result: CaseResult) -> tuple[LogTail, ...]:
        """The ends of a case's broken runs; of a case that is bad otherwise, that of its last."""
        chosen = list(_broken(result))[:MAX_OF_A_CASE]
        if not chosen and result.measurement is not None and standing_of(result).is_alarm:
            chosen = [
                (f"run {run.run}", run) for run in reversed(result.measurement.runs) if run.log
            ][:1]
        return tuple(self._tail(name, run) for name, run in chosen)

    def _tail(self, name: str, run: Run) -> LogTail:
        if run.log is None:
            return LogTail(name=name, log="", text="", missing="It has no log.")
        if self._characters > MAX_CHARACTERS:
            missing = "Its end is not shown: the page has enough of them."
            return LogTail(name=name, log=run.log, text="", missing=missing)
        text = "\n".join(last_lines(Path(run.log), LINES))
        self._characters += len(text)
        missing = "" if text else "It cannot be read, or is empty."
        return LogTail(name=name, log=run.log, text=text, missing=missing)


def _broken(result: CaseResult) -> Iterator[tuple[str, Run]]:
    measurements = [("", result.measurement)]
    if result.interleaved is not None:
        measurements.append(("tested, in turn: ", result.interleaved.candidate))
        measurements.append(("accepted, in turn: ", result.interleaved.control))
    for arm, measured in measurements:
        for run in measured.runs if measured is not None else ():
            if run.status is not RunStatus.OK:
                yield f"{arm}run {run.run} ({run.status.value})", run
            for number, attempt in enumerate(run.failed_attempts, 1):
                yield f"{arm}run {run.run}, attempt {number} ({attempt.status.value})", attempt

"""What one node of a job has reported, as it is read here while the report grows."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, final

from pytest_dlperf.logs.arrivals import ArrivalsWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.launch.queue import NodeEnd


@final
class NodeNews:
    """The progress of one node of a job, by its reports."""

    def __init__(self, rank: int, reports: Path, log: Path) -> None:
        """Begin before the job does; the node's program prints into ``log``."""
        self.rank = rank
        self.host = ""
        """Its name, once it is there."""
        self.found: dict[str, Any] | None = None
        """What the look at the node has found."""
        self.addresses: list[str] = []
        """The addresses of all nodes, once they have met; and the first port of the row."""
        self.first = 0
        self.is_started = False
        """Whether its program runs, or has run."""
        self.problem: str | None = None
        """Why its program was not started."""
        self.is_asked = False
        """Whether the engine had asked it to end before its program did."""
        self.exit_code: int | None = None
        """What its program has ended with, by itself or because it was ended."""
        self.is_killed = False
        """Whether the supervisor that its program ran under was killed, or the guardian of that."""
        self.end: NodeEnd | None = None
        """How the engine says that the node has ended."""
        self.problems: list[str] = []
        """What else went wrong, as messages."""
        self._reports = reports
        self._read = 0
        self._arrivals = ArrivalsWriter(log)
        self._log = log

    @property
    def is_done(self) -> bool:
        """Whether its program has ended."""
        return self.exit_code is not None or self.is_killed or self.end is not None

    @property
    def failed(self) -> bool:
        """Whether its program has ended with an error, or nobody knows how it ended."""
        return self.is_done and self.exit_code != 0

    @property
    def failed_by_itself(self) -> bool:
        """Whether that is known to be before the engine ended the node."""
        by_engine = self.end is not None and (self.end.exit_code is not None or self.end.reason)
        is_known = self.exit_code is not None or self.is_killed or by_engine
        return bool(self.failed and is_known and not self.is_asked)

    def refresh(self) -> None:
        """Take what has been reported since the last time."""
        with contextlib.suppress(FileNotFoundError), self._reports.open("rb") as file:
            file.seek(self._read)
            # What has no end yet is read again.
            lines = file.read().rpartition(b"\n")[0]
            self._read += len(lines) + bool(lines)
            for line in lines.splitlines():
                self._take(json.loads(line))

    def close(self) -> None:
        """Be done with a node that has ended."""
        self._arrivals.seal()

    def _take(self, report: dict[str, Any]) -> None:
        self.host = report.get("host", self.host)
        self.found = report.get("look", self.found)
        self.addresses = report.get("addresses", self.addresses)
        self.first = report.get("first", self.first)
        self.is_started = self.is_started or "started" in report
        for word in ("cannot_start", "cannot_prepare"):
            if word in report:
                self.problem = str(report[word] or "its working directory is not there")
        if "asked" in report and self.exit_code is None and not self.is_killed:
            self.is_asked = True
        if "ended" in report:
            self.exit_code = report["ended"]
        if "arrivals" in report:
            self._arrivals.add(report["arrivals"], report["anchor"])
            if report.get("lost"):
                self.problems.append(
                    f"some of the output is lost: cannot write the log {self._log}: "
                    f"{report['lost']}"
                )
        self._take_faults(report)

    def _take_faults(self, report: dict[str, Any]) -> None:
        """Take what has gone wrong with its supervisor, or at the end."""
        killed = ""
        if "supervisor_killed" in report:
            killed = f"its supervisor {report['supervisor_killed']}"
        elif "guardian_killed" in report:
            killed = "the guardian of its supervisor was killed"
        if killed:
            self.is_killed = True
            self.problems.append(f"{killed}, and the run with it")
        if "at_end" in report:
            self.problems.append(f"at the end of the run, {report['at_end']}")
        if report.get("left"):
            self.problems.append(f"processes {report['left']} could not be ended")
        if "kept" in report:
            self.problems.append(str(report["kept"]))

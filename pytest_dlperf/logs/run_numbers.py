"""The logs of a run without steps, one of each node: read for their numbers when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, final

from pytest_dlperf.formats.declared import DeclaredMetric
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.facts import FactCheck
from pytest_dlperf.logs.lines import Block, LogFile, blocks, readable
from pytest_dlperf.logs.metric_numbers import MetricScan, Numbers
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.run_metrics import NodeLog, invalid, with_declared
from pytest_dlperf.logs.tracks import StepProgress
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Run, RunStatus

_ALL: Final = 0, 0
_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of a log in which numbers are found by key, which is held as a whole."""
_NO_STEPS: Final = StepProgress(found=0, warmup=0, window=0, slowest=0, last={}, awaited={})


@final
class RunNumbers:
    """Reads the logs of a probe's run: what ``RunLogs`` is for a training.

    While the run lives nothing is known of it: it is over when its program ends.
    """

    readings: ClassVar[Sequence[LogReading]] = ()
    state: ClassVar[LogState] = LogState.GROWING
    reason: ClassVar[str | None] = None
    steps: ClassVar[StepProgress] = _NO_STEPS
    first_step: ClassVar[int | None] = None
    awaited: ClassVar[Mapping[tuple[int, str], int]] = {}
    any_lags: ClassVar[bool] = False
    lacks_numbers: ClassVar[bool] = False

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        run: int,
        case: Case,
        log_format: LogFormat,
        declared: Sequence[DeclaredMetric],
    ) -> None:
        self._paths = paths
        self._run = run
        self._case = case
        self._format = log_format
        self._declared = declared

    def advance(self, most: int) -> bool:  # noqa: ARG002 - as with steps
        """Read nothing yet."""
        return True

    def restart(self) -> None:
        """Forget nothing: nothing has been read."""

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Read the logs, of which so many bytes count each, and measure the run."""
        run = Run(run=self._run, status=RunStatus.OK, log=str(self._paths[0]))
        bounds = [*limits, *[None] * len(self._paths)]
        logs, sizes = [], []
        for node, path in enumerate(self._paths):
            of_node = [each for each in self._declared if each.is_on(node, len(self._paths))]
            scan = MetricScan([each for each in of_node if each.by_key is None])
            keyed = [Numbers(each) for each in of_node if each.by_key is not None]
            facts = FactCheck(self._format, self._case)
            try:
                sizes.append(_read(path, scan, facts, bounds[node]) if of_node else 0)
                if keyed:
                    _read_by_key(path, keyed, bounds[node])
            except OSError as error:
                why = error.strerror or error
                return invalid(run, f"the log cannot be read: {why} ({readable(str(path))})")
            except BrokenContractError as error:
                return invalid(run, f"{error.reason} ({readable(str(path))})")
            if (contradiction := facts.contradiction()) is not None:
                return invalid(run, str(contradiction))
            numbers = {each.declared.metric.name: each for each in (*scan.numbers, *keyed)}
            logs.append(NodeLog(str(path), numbers, has_steps=False))
        if not any(sizes):
            return invalid(run, "nothing was printed")
        return with_declared(run, self._declared, logs, _ALL)


def _read(path: Path, scan: MetricScan, facts: FactCheck, limit: int | None) -> int:
    """Take the numbers and facts of a log; return how many bytes it has."""
    with LogFile(path) as file:
        file.limit = limit
        for block in blocks(file):
            # The program has ended, and so has its last line, whether it says so or not.
            whole = Block(block.text, block.offset)
            facts.look(whole)
            scan.search(whole, _ALL)
        return file.size


def _read_by_key(path: Path, keyed: Sequence[Numbers], limit: int | None) -> None:
    """Take the numbers that are found by key; where there is none, say what is there instead."""
    with LogFile(path) as file:
        file.limit = limit
        size = file.size
        text = file.read(min(size, _MAX_BYTES))
    for numbers in keyed:
        if size > _MAX_BYTES:
            numbers.refuse(f"the log has {size} bytes; read by key are {_MAX_BYTES} at most", 0)
        elif numbers.declared.by_key is not None:
            numbers.take_found(numbers.declared.by_key.find(text))

"""The cases of a session's tests: as parameters and by test; errors of tests in pytest's terms.

Collecting needs this and little else, so it imports nothing that only measuring needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError, DlperfError, UsageError
from pytest_dlperf.model.metric import SPEEDUP, THROUGHPUT, Metric
from pytest_dlperf.plugin.suite import Suite
from pytest_dlperf.report.printing import plain

if TYPE_CHECKING:
    from pytest_dlperf.plugin.measuring import Measuring  # noqa: F401 - of a key, in quotes

SUITE: Final = pytest.StashKey[Suite]()
MEASURING: Final = pytest.StashKey["Measuring"]()
"""Absent in sessions that run no test."""

CASE_FIXTURES: Final = {"dlperf_case": THROUGHPUT, "dlperf_scaled_case": SPEEDUP}
"""The fixtures of cases, and the metric of a test that asks for no other."""
METRIC_FIXTURE: Final = "dlperf_metric"


def case_of(item: pytest.Item) -> tuple[Case, str] | None:
    """Return the case that a test is parametrised with, and the name of its metric."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    metric = callspec.params.get(METRIC_FIXTURE)
    for fixture, usual in CASE_FIXTURES.items():
        case = callspec.params.get(fixture)
        if isinstance(case, Case):
            return case, metric.name if isinstance(metric, Metric) else usual
    return None


def lacks_case(node: pytest.Item | pytest.Collector) -> bool:
    """Whether a test asks for a case, and was given none."""
    asks = not CASE_FIXTURES.keys().isdisjoint(getattr(node, "fixturenames", ()))
    return asks and case_of(node) is None  # type: ignore[arg-type]


def tests_of(items: Iterable[pytest.Item]) -> dict[tuple[Case, str], None]:
    """List the cases that tests are parametrised with, and their metrics, each pair once."""
    return dict.fromkeys(about for item in items if (about := case_of(item)) is not None)


class Parameters:
    """Parameters of tests, with ids and marks; cheap, for there may be ten thousand cases."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._marks: dict[str, list[pytest.MarkDecorator]] = {}

    def of(self, fixture: str, system_file: Path | None, *, with_metric: bool) -> Iterator[Any]:
        """Yield the cases for a fixture, or each with its metrics beside throughput and speedup.

        With ``system_file`` they are its cases only. A test that asks for no metric is about
        throughput or speedup: it has the cases of which that is judged.
        """
        usual = CASE_FIXTURES.values()
        for system in self._suite.run_systems:
            if system_file not in (None, system.file):
                continue
            judged = {metric.name: metric for metric in system.metrics if metric.is_judged}
            own = [metric for name, metric in judged.items() if name not in usual]
            if not (own if with_metric else CASE_FIXTURES[fixture] in judged):
                continue
            for case in system.cases:
                if fixture == "dlperf_scaled_case" and not case.is_scaled:
                    continue
                if case.id not in self._marks:
                    marks = [getattr(pytest.mark, name) for name in system.marks]
                    self._marks[case.id] = [pytest.mark.dlperf(**case.marker()), *marks]
                marks = self._marks[case.id]
                if not with_metric:
                    yield pytest.param(case, id=case.id, marks=marks)
                    continue
                for metric in own:
                    yield pytest.param(case, metric, id=f"{case.id}-{metric.name}", marks=marks)


def sorted_for_packing(items: list[pytest.Item], workers: int) -> Iterator[pytest.Item]:
    """Order tests so that hosts are packed best: the largest gangs first.

    Speedups come last: by then what they need has mostly been measured.
    """
    largest_first = sorted(items, key=_launch_order)
    # Each worker is given two tests to begin with: its first is to be one of the largest.
    for first in range(workers):
        yield from largest_first[first : 2 * workers : workers]
    yield from largest_first[2 * workers :]


def _launch_order(item: pytest.Item) -> tuple[int, int]:
    about = case_of(item)
    if about is None:
        return (0, 0)
    case, metric = about
    return (1 + (metric != THROUGHPUT) + (metric == SPEEDUP), -case.topology.nodes)


# ------------------------------------------------------------------ errors of tests


def outcome_of(error: DlperfError) -> BaseException:
    """Return the exception of a test: a skip where it cannot measure here, else a failure."""
    if isinstance(error, CannotMeasureError):
        return pytest.skip.Exception(plain(str(error)))
    return pytest.fail.Exception(plain(str(error)), pytrace=False)


@contextmanager
def ending_session() -> Iterator[None]:
    """Turn a user's mistake into pytest's usage error, which ends the session."""
    try:
        yield
    except UsageError as error:
        raise pytest.UsageError(plain(str(error))) from error


def not_collected(why: UsageError | str) -> pytest.Collector.CollectError:
    """Return the exception of a test that cannot be given its cases."""
    return pytest.Collector.CollectError(plain(str(why)))

"""The cases of a session's tests: as parameters and by test; errors of tests in pytest's terms.

Collecting needs this and little else, so it imports nothing that only measuring needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError, DlperfError, UsageError
from pytest_dlperf.model.metric import SPEEDUP, THROUGHPUT, Metric
from pytest_dlperf.report.printing import plain

if TYPE_CHECKING:
    from pytest_dlperf.config.systems import System
    from pytest_dlperf.plugin.measuring import Measuring  # noqa: F401 - of a key, in quotes
    from pytest_dlperf.plugin.suite import Suite

SUITE: Final = pytest.StashKey["Suite"]()
MEASURING: Final = pytest.StashKey["Measuring"]()
"""Absent in sessions that run no test."""

CASE_FIXTURES: Final = {"dlperf_case": THROUGHPUT, "dlperf_scaled_case": SPEEDUP}
"""The fixtures of cases, and the metric of a test that asks for no other."""
METRIC_FIXTURE: Final = "dlperf_metric"
OWN_TESTS: Final = pytest.StashKey[list[tuple["Path", "Callable[..., object]"]]]()
"""The project's own tests that ask for cases: their files and functions."""


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


def has_no_metric_to_judge(item: pytest.Item | pytest.Collector) -> bool:
    """Whether a test is parametrized with metrics or cases that no system has."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or CASE_FIXTURES.keys().isdisjoint(callspec.params):
        return False
    return not any(isinstance(callspec.params.get(fixture), Case) for fixture in CASE_FIXTURES)


def asks_for_cases(node: pytest.Item | pytest.Collector) -> bool:
    """Whether a test asks for a case."""
    return not CASE_FIXTURES.keys().isdisjoint(getattr(node, "fixturenames", ()))


def tests_of(items: Iterable[pytest.Item]) -> dict[tuple[Case, str], None]:
    """List the cases that tests are parametrised with, and their metrics, each pair once."""
    return dict.fromkeys(about for item in items if (about := case_of(item)) is not None)


class Parameters:
    """Parameters of tests, with ids and marks; cheap, for there may be ten thousand cases."""

    def __init__(self, suite: Suite) -> None:
        mark = pytest.mark.dlperf
        self._suite = suite
        of_system = {
            system.id: [getattr(pytest.mark, name) for name in system.marks]
            for system in suite.systems.values()
        }
        self._metrics = {system.id: own_metrics(system) for system in suite.systems.values()}
        self._judged = {
            system.id: {metric.name for metric in system.metrics if metric.is_judged}
            for system in suite.systems.values()
        }
        self._files = {system.id: system.file for system in suite.systems.values()}
        self._cases: list[tuple[Case, Any]] = [
            (
                case,
                pytest.param(
                    case, id=case.id, marks=[mark(**case.marker()), *of_system[case.system]]
                ),
            )
            for case in suite.cases
        ]

    def of_cases(self, fixture: str, system_file: Path | None) -> list[Any]:
        """Return the parameters of a fixture of cases; with ``system_file``, of its cases only.

        A test that asks for no metric is about throughput or speedup: it has the cases of which
        that is judged.
        """
        usual = CASE_FIXTURES[fixture]
        return [
            parameter
            for case, parameter in self._of_files(fixture, system_file)
            if usual in self._judged[case.system]
        ]

    def _of_files(self, fixture: str, system_file: Path | None) -> Iterator[tuple[Case, Any]]:
        return (
            (case, parameter)
            for case, parameter in self._cases
            if (system_file is None or self._files[case.system] == system_file)
            and (fixture == "dlperf_case" or case.is_scaled)
        )

    def of_metrics(self, fixture: str, system_file: Path | None) -> list[Any]:
        """Return the parameters of a fixture of cases with the metrics of each case."""
        return [
            pytest.param(
                *parameter.values, metric, id=f"{parameter.id}-{metric.name}", marks=parameter.marks
            )
            for case, parameter in self._of_files(fixture, system_file)
            for metric in self._metrics[case.system]
        ]


def own_metrics(system: System) -> tuple[Metric, ...]:
    """Return the metrics that a system has judged beside throughput and speedup."""
    every = CASE_FIXTURES.values()
    return tuple(m for m in system.metrics if m.is_judged and m.name not in every)


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
        return pytest.skip.Exception(_plain(error))
    return pytest.fail.Exception(_plain(error), pytrace=False)


@contextmanager
def ending_session() -> Iterator[None]:
    """Turn a user's mistake into pytest's usage error, which ends the session."""
    try:
        yield
    except UsageError as error:
        raise pytest.UsageError(_plain(error)) from error


def not_collected(why: UsageError | str) -> pytest.Collector.CollectError:
    """Return the exception of a test that cannot be given its cases."""
    return pytest.Collector.CollectError(_plain(why))


def _plain(text: object) -> str:
    return plain(str(text))

"""The cases of a session's tests: which fixture takes which, and what a test is about.

Collecting needs this and little else, so nothing is imported here that only measuring needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pytest_dlperf.model.case import SINGLE_DEVICE, Case

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pytest_dlperf.model.judgement import Quantity
    from pytest_dlperf.plugin.measuring import Measuring  # noqa: F401 - of a key, in quotes
    from pytest_dlperf.plugin.suite import Suite

SUITE: Final = pytest.StashKey["Suite"]()
MEASURING: Final = pytest.StashKey["Measuring"]()
"""Not there where pytest only looks at tests."""

CASE_FIXTURES: Final = {"dlperf_case": "throughput", "dlperf_multi_device_case": "speedup"}
"""The parametrised fixtures, and which quantity a test that asks for one is about."""


def case_of(item: pytest.Item) -> tuple[Case, Quantity] | None:
    """Return the case that a test is parametrised with, and what the test is about."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    from pytest_dlperf.model.judgement import Quantity

    for fixture, quantity in CASE_FIXTURES.items():
        case = callspec.params.get(fixture)
        if isinstance(case, Case):
            return case, Quantity(quantity)
    return None


def is_about(fixture: str, case: Case) -> bool:
    """Say whether a parametrised fixture takes a case: one device has no speedup over itself."""
    return fixture == "dlperf_case" or case.topology != SINGLE_DEVICE


def parameters_of(suite: Suite) -> list[tuple[Case, Any]]:
    """Give each case its id and marks; kept lean, for there may be ten thousand of them."""
    mark = pytest.mark.dlperf
    of_system = {
        system.id: [getattr(pytest.mark, name) for name in system.marks]
        for system in suite.systems.values()
    }
    return [
        (
            case,
            pytest.param(case, id=case.id, marks=[mark(**case.axes()), *of_system[case.system]]),
        )
        for case in suite.cases
    ]


def packed(items: list[pytest.Item], workers: int) -> Iterable[pytest.Item]:
    """Order tests so that hosts are packed best: the largest gangs first.

    Speedups come behind all throughputs: by then what they need has mostly been measured.
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
    case, quantity = about
    return (1 + (quantity.value == "speedup"), -case.topology.nodes)

"""How the topologies of a training scale: their speedups against the ideal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import by_training, efficiency_percent
from pytest_dlperf.reports.tables import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.model.case import Topology
    from pytest_dlperf.model.records import CaseResult

_MIN_TOPOLOGIES: Final = 2
"""With fewer the table says it all."""


def speedup_lines(results: Iterable[CaseResult], *, width: int) -> Iterator[str]:
    """For each training with several topologies its speedups, in lines of ``width`` columns."""
    for name, members in by_training(results).items():
        speedups = {
            result.case.topology: result.speedup
            for result in members
            if result.speedup is not None and result.case.topology != SINGLE_DEVICE
        }
        if len(speedups) >= _MIN_TOPOLOGIES:
            yield from _lines(name, speedups, width)


def _lines(name: str, speedups: dict[Topology, float], width: int) -> Iterator[str]:
    by_size = sorted(speedups, key=lambda topology: (topology.world_size, topology))
    pieces = []
    for topology in by_size:
        ideal = topology.world_size
        percent = efficiency_percent(speedups[topology], ideal)
        reached = numbers.speedup(speedups[topology])
        pieces.append(f" {topology} {reached} of {ideal} ({percent:.0f} %)")
    yield from listed(f"{name}  speedup", pieces, width)

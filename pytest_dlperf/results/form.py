"""The form of a case in the results file, schema 1; everything else is as in ``Results``.

Numbers that follow from others are there for readers of the file; decoding ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.measurement import (
    Fingerprint,
    InterleavedRuns,
    Measurement,
    Run,
)
from pytest_dlperf.model.records import AcceptedNumbers

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputNumbers:
    """Median, mean and spread of the runs that count; the spread is rounded."""

    median: float | None
    mean: float | None
    spread: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntry:
    """One case: what was run, what came out, what it was held against."""

    id: Case
    system: str
    framework: str
    model: str
    precision: str
    batch_per_device: int
    options: tuple[str, ...]
    topology: str
    nodes: int
    devices_per_node: int
    unit: str | None
    runs: tuple[Run, ...]
    throughput: ThroughputNumbers
    speedup: float | None
    accepted: AcceptedNumbers | None
    verdict: Mapping[Quantity, Verdict | None]
    gate: Mapping[Quantity, Judgement | None]
    fingerprint: Fingerprint | None
    available_runs: int | None
    whole: bool
    unfinished: tuple[Quantity, ...]
    interleaved: InterleavedRuns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntries:
    """All cases, and the single devices that no test was selected of."""

    cases: tuple[CaseEntry, ...]
    single_devices: tuple[Measurement, ...]


def axes(case: Case) -> dict[str, Any]:
    """Split the id of a case into the keys of its entry."""
    return {**case.axes(), "options": case.options}

"""Measured cases as benchmarks of pytest-benchmark: for its files, comparisons and histograms.

pytest-benchmark times functions and documents no way in for what was timed elsewhere. What is used
of it besides its options: ``Metadata`` and the list of them that its session saves, compares and
plots at its end, also under xdist, where its own fixture measures nothing. A release that changes
one of them fails the session; its results are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.measurement import Measurement
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.results.file import metric_entry

_ASKING: Final = ("json", "save", "autosave", "compare", "compare_fail", "histogram")
"""Options of pytest-benchmark, ``--benchmark-`` before each, that want benchmarks of a session."""


def hand_over(config: Any, session: SessionReport) -> Iterator[str]:
    """Add every measured case to pytest-benchmark's session, where it was asked for anything.

    A round is a run that counts; its length is the seconds per step: its work over the run's
    throughput. A case with broken runs is left out, and named.
    """

    def option(name: str) -> Any:  # None where pytest-benchmark is not loaded
        return getattr(config.option, f"benchmark_{name}", None)

    if not any(map(option, _ASKING)):
        return
    theirs: Any = getattr(config, "_benchmarksession", None)
    # Under xdist it is disabled without this option, for its own measurements. Ours are made.
    if option("disable") and not option("enable"):
        yield "pytest-benchmark was given no case: it is disabled, without --benchmark-enable"
        return
    measured = [
        (one, one.measurement) for one in session.results.cases if one.measurement and one.case.work
    ]
    faults = {result.case.id: _fault(measurement) for result, measurement in measured}
    try:
        theirs.benchmarks.extend(
            [
                _benchmark(result, measurement, session.results.cluster)
                for result, measurement in measured
                if not faults[result.case.id]
            ]
        )
    finally:
        if theirs is not None and not getattr(theirs, "benchmarks", None):
            # It would warn that there is nothing to save: a crash where warnings are errors.
            theirs.disabled = True
    if left_out := [f"{case_id} ({fault})" for case_id, fault in faults.items() if fault]:
        named = numbers.named(left_out, 5)
        yield f"pytest-benchmark was not given what did not run whole: {named}"


def _fault(measurement: Measurement) -> str:
    """Say why a case has no seconds per step to compare with those of other sessions."""
    if broken := measurement.broken_runs:
        return f"run {broken[0].run} {broken[0].status.value}"
    # The published estimator rounds: a very low throughput is 0.00.
    return "" if min(measurement.samples(THROUGHPUT).values, default=0) > 0 else "no throughput"


class _Axes(dict[str, Any]):
    """The axes of a case; grouping by a parameter that only other benchmarks have finds none."""

    def __missing__(self, name: str) -> None:
        return None


def _benchmark(result: CaseResult, measurement: Measurement, cluster: str) -> Any:
    from pytest_benchmark.stats import Metadata

    case, over = result.case, result.case.reference_topology
    estimator = measurement.estimator.value
    # With brackets, as the names of tests have them: it groups by what stands before them.
    name = f"step[{case.id}]"
    # In place of a test's fixture. Saved runs are joined by the full name: numbers of two clusters
    # or estimators are not compared, while any test may have measured the case.
    fixture = SimpleNamespace(
        name=name,
        fullname=f"{cluster}/{estimator}::{name}",
        group=f"{case.system}-{case.precision}",
        param=case.id,
        params=_Axes(case.axes()),
        extra_info={
            "case": case.id,
            "cluster": cluster,
            "estimator": estimator,
            "topology": str(case.topology),
            "reference_topology": over and str(over),
            "global_batch": case.global_batch,
            "metrics": {name: metric_entry(known) for name, known in result.metrics().items()},
        },
        cprofile_stats=None,
        has_error=False,
    )
    benchmark = Metadata(fixture, iterations=1, options={})
    work = case.work_of_step(measurement.metric(THROUGHPUT).unit)
    for throughput in measurement.samples(THROUGHPUT).values:
        benchmark.update(work / throughput)
    # What it will ask for when it saves and compares: better now, where a surprise can be told.
    benchmark.as_dict(include_data=True, flat=True)
    return benchmark

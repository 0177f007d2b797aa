"""Measured cases as benchmarks of pytest-benchmark: for its files, comparisons and histograms.

pytest-benchmark times functions and documents no way in for what was timed elsewhere. What is used
of it besides its options: ``Metadata`` and the list of them that its session saves, compares and
plots at its end, also under xdist, where its own fixture measures nothing; and ``handle_saving`` of
that session, which a full disk makes fail. A release that changes
one of them is told of at the end of a session, and fails it; the session's results are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.report import Note, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

_ASKING: Final = ("json", "save", "autosave", "compare", "compare_fail", "histogram")
"""Options of pytest-benchmark, ``--benchmark-`` before each, that want benchmarks of a session."""
_NAMED_CASES: Final = 5
_NOT_UNDERSTOOD: Final = (AttributeError, ImportError, LookupError, TypeError, ValueError)
"""What Python raises where a name, a signature or a value is not what it was."""


class BenchmarkBridge(Report):
    """``--benchmark-…``: hand the cases to pytest-benchmark before it ends."""

    name = "benchmarks of pytest-benchmark"
    needs_tests = False  # it would warn that there is nothing to save

    def __init__(self, config: Any, tell: Callable[[Note], None]) -> None:
        """Take pytest's configuration; ``tell`` takes what is known when pytest-benchmark ends."""
        self._config = config
        self._tell = tell

    def write(self, results: Results) -> list[Note]:
        """Hand over what was measured."""
        return hand_over(self._config, results.cases, results.cluster, tell=self._tell)


def hand_over(
    config: Any, results: Sequence[CaseResult], cluster: str, *, tell: Callable[[Note], None]
) -> list[Note]:
    """Add every measured case to its session, where the user has asked it for anything.

    A round is a run that counts; its length is the seconds per step: the global batch over the
    run's throughput. A case with broken runs is left out, and named. ``tell`` is given what becomes
    known when pytest-benchmark ends: that its files could not be written.
    """
    if not any(_option(config, name) for name in _ASKING):
        return []
    _keep_the_end(getattr(config, "_benchmarksession", None), tell)
    # Under xdist it is disabled without this option, for its own measurements. Ours are made.
    if _option(config, "disable") and not _option(config, "enable"):
        text = "pytest-benchmark was given no case: it is disabled, and --benchmark-enable is not"
        return [Note(f"{text} set")]
    measured = [(result, result.measurement) for result in results if result.measurement]
    faults = {result.case.id: _fault(measurement) for result, measurement in measured}
    session: Any = getattr(config, "_benchmarksession", None)
    try:
        benchmarks = [
            _benchmark(result, measurement, cluster)
            for result, measurement in measured
            if faults[result.case.id] is None
        ]
        session.benchmarks.extend(benchmarks)
    except _NOT_UNDERSTOOD as error:
        return [_not_understood(error)]
    finally:
        is_empty = not getattr(session, "benchmarks", None)
        if is_empty and session is not None:
            # It would warn that there is nothing to save: a crash where warnings are errors.
            session.disabled = True
    left_out = {case_id: fault for case_id, fault in faults.items() if fault is not None}
    if left_out:
        return [_left_out(left_out)]
    if is_empty:
        return [Note("pytest-benchmark was given no case: none was measured")]
    return []


def _keep_the_end(session: Any, tell: Callable[[Note], None]) -> None:
    """Keep its comparison, and the reports that come after it, where it cannot save."""
    save = getattr(session, "handle_saving", None)
    if save is None:
        return  # whatever it raises ends it, and is told

    def saved() -> None:
        try:
            save()
        except OSError as error:
            place = f" to {error.filename}" if error.filename else ""
            text = f"pytest-benchmark could not write its files{place}: {error.strerror or error}"
            tell(Note(text, is_bad=True))

    session.handle_saving = saved


def _option(config: Any, name: str) -> Any:
    """Return an option of pytest-benchmark, ``None`` where it is not loaded."""
    return getattr(config.option, f"benchmark_{name}", None)


def _fault(measurement: Measurement) -> str | None:
    """Say why a measurement has no seconds per step to compare with those of other nights."""
    broken = measurement.broken_runs
    if broken:
        return f"run {broken[0].run} {broken[0].status.value}"
    if not measurement.throughputs or min(measurement.throughputs) <= 0:
        return "no throughput"  # the published estimator rounds: a very low one is 0.00
    return None


def _left_out(faults: Mapping[str, str]) -> Note:
    named = [f"{case_id} ({fault})" for case_id, fault in faults.items()]
    told = numbers.named(named, _NAMED_CASES)
    return Note(f"pytest-benchmark was not given what did not run whole: {told}")


def _not_understood(error: Exception) -> Note:
    from importlib.metadata import version

    return Note(
        f"pytest-benchmark {version('pytest-benchmark')} is not understood: "
        f"{type(error).__name__}: {error}; it was given no case. -p no:benchmark leaves it out",
        is_bad=True,
    )


# ------------------------------------------------------------------------ what it is given


class _Axes(dict[str, Any]):
    """The axes of a case; grouping by a parameter that only other benchmarks have finds none."""

    def __missing__(self, name: str) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fixture:
    """Stand in for the fixture of a test, as far as ``Metadata`` reads it.

    Saved runs are joined by ``fullname``. Numbers of two clusters or estimators are not compared,
    so both stand there; the test that measured the case does not, for any test may.
    """

    name: str
    fullname: str
    group: str
    param: str
    params: dict[str, Any]
    extra_info: dict[str, Any]
    cprofile_stats: None = None
    has_error: bool = False


def _benchmark(result: CaseResult, measurement: Measurement, cluster: str) -> Any:
    from pytest_benchmark.stats import Metadata

    case = result.case
    # With brackets, as the names of tests have them: it groups by what stands before them.
    name = f"step[{case.id}]"
    fixture = _Fixture(
        name=name,
        fullname=f"{cluster}/{measurement.estimator.value}::{name}",
        group=f"{case.system}-{case.precision}",
        param=case.id,
        params=_Axes(case.axes()),
        extra_info=_extra_info(result, measurement, cluster),
    )
    benchmark = Metadata(fixture, iterations=1, options={})
    for throughput in measurement.throughputs:
        benchmark.update(case.global_batch / throughput)
    # What it will ask for when it saves and compares: better now, where a surprise can be told.
    benchmark.as_dict(include_data=True, flat=True)
    return benchmark


def _extra_info(result: CaseResult, measurement: Measurement, cluster: str) -> dict[str, Any]:
    """Return what seconds per step do not say, named as in the results file."""
    verdicts = {quantity.value: result.verdict(quantity) for quantity in Quantity}
    accepted = result.accepted
    return {
        "case": result.case.id,
        "cluster": cluster,
        "estimator": measurement.estimator.value,
        "topology": str(result.case.topology),
        "global_batch": result.case.global_batch,
        "unit": measurement.unit,
        "throughput": measurement.median,
        "spread": measurement.spread,
        "speedup": result.speedup,
        "accepted": {"throughput": accepted.throughput, "speedup": accepted.speedup}
        if accepted
        else None,
        "reference": {
            quantity.value: judgement.reference if judgement else None
            for quantity in Quantity
            for judgement in [result.judgements.get(quantity)]
        },
        "verdict": {name: verdict.value if verdict else None for name, verdict in verdicts.items()},
    }

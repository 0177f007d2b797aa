"""What a test asks for: a case, its measurement and the gate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from pytest_dlperf.config.values import ControlArm
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.records import AcceptedNumbers, TestRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import InterleavedRuns, Measurement
    from pytest_dlperf.plugin.suite import Suite

SUITE: Final = pytest.StashKey["Suite"]()
_RECORD: Final = pytest.StashKey[TestRecord]()

CASE_FIXTURES: Final = {
    "dlperf_case": Quantity.THROUGHPUT,
    "dlperf_multi_device_case": Quantity.SPEEDUP,
}
"""The parametrised fixtures, and which quantity a test that asks for one is about."""


def is_about(fixture: str, case: Case) -> bool:
    """Whether a parametrised fixture takes this case: one device has no speedup over itself."""
    return CASE_FIXTURES[fixture] is Quantity.THROUGHPUT or case.topology != SINGLE_DEVICE


def case_of(item: pytest.Item) -> tuple[Case, Quantity] | None:
    """The case that a test is parametrised with, and what the test is about."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    for fixture, quantity in CASE_FIXTURES.items():
        case = callspec.params.get(fixture)
        if isinstance(case, Case):
            return case, quantity
    return None


def record_of(item: pytest.Item) -> TestRecord | None:
    """The record of a test of a case; ``None`` for any other test."""
    if _RECORD not in item.stash:
        about = case_of(item)
        if about is None:
            return None
        item.stash[_RECORD] = TestRecord(case=about[0], quantity=about[1])
    return item.stash[_RECORD]


def measure_for(request: pytest.FixtureRequest) -> Callable[[Case], Measurement]:
    """Return what measures cases for a test, and notes in its record what it measured."""
    from pytest_dlperf.model.errors import BrokenError, CannotMeasureError
    from pytest_dlperf.plugin.suite import SuiteError

    suite = _suite(request)
    record = record_of(request.node)

    def measure(case: Case) -> Measurement:
        problem: Exception
        try:
            # A baseline that cannot be read is told before hours of training, not after.
            suite.baseline(case)
            measurement = suite.measure(case)
        except (CannotMeasureError, BrokenError, SuiteError) as error:
            problem = error
        else:
            if record is not None:
                record.measurements[case.id] = measurement
            return measurement
        finally:
            if record is not None:
                for fault in suite.host_faults:
                    told = record.host_faults.get(fault.host, ())
                    record.host_faults[fault.host] = (*told, fault.fault)
        # Outside the block above, or the exception would be told as the cause once more.
        if isinstance(problem, CannotMeasureError) and not _lacks_single_device(record, case):
            pytest.skip(str(problem))
        if record is not None and _lacks_single_device(record, case):
            reason = f"the speedup is not measured, for its single device is not: {problem}"
            record.judge(
                Judgement(quantity=Quantity.SPEEDUP, verdict=Verdict.INVALID, reason=reason)
            )
            pytest.fail(
                f"invalid: speedup of {record.case.id}\n  reason     {reason}", pytrace=False
            )
        pytest.fail(str(problem), pytrace=False)

    return measure


def gate_for(request: pytest.FixtureRequest) -> Gate:
    """Return what judges the measurements of a test, and notes the verdicts in its record."""
    return Gate(_suite(request), record_of(request.node))


def _lacks_single_device(record: TestRecord | None, case: Case) -> bool:
    """Whether a test that has measured its own case now misses what the speedup is taken over."""
    return (
        record is not None
        and case == record.case.single_device != record.case
        and record.case.id in record.measurements
    )


def _suite(request: pytest.FixtureRequest) -> Suite:
    suite = request.config.stash.get(SUITE, None)
    if suite is None:
        pytest.fail(
            "there are no system files here; --dlperf-systems or the ini key dlperf_systems "
            "names their folder",
            pytrace=False,
        )
    return suite


class Gate:
    """Judges what a test has measured. Each method fails the test unless the verdict passes."""

    def __init__(self, suite: Suite, record: TestRecord | None) -> None:
        """Judge by the suite's baselines and note the verdicts in the test's record."""
        self._suite = suite
        self._record = record

    def throughput(self, measurement: Measurement) -> Judgement:
        """Judge the median throughput.

        Raises:
            ValueError: The measurement is of another case than the test.
        """
        from pytest_dlperf.gate.control import confirm_throughput
        from pytest_dlperf.gate.judge import judge_throughput, why_incomparable

        case, baseline = self._baseline(measurement)
        self._note(baseline, is_held_against=why_incomparable(measurement, baseline) is None)
        judgement = judge_throughput(
            measurement,
            baseline,
            tolerance_percent=self._suite.system_of(case).tolerance_percent,
            forced=self._suite.settings.gate,
            repeats=self._suite.fixed_repeats,
        )
        if self._suite.asks_control(judgement):
            arms, problem = self._interleaved(measurement)
            judgement = self._without_comparison(judgement, arms, problem) or confirm_throughput(
                judgement, arms[0], baseline
            )
        return self._settle(judgement, measurement, None)

    def speedup(self, measurement: Measurement, single_device: Measurement) -> Judgement:
        """Judge the speedup over one device.

        Raises:
            ValueError: The measurements are not of the test's case and of its single device.
        """
        from pytest_dlperf.gate.control import confirm_speedup
        from pytest_dlperf.gate.judge import judge_speedup, why_incomparable

        case, baseline = self._baseline(measurement)
        if single_device.case_id != case.single_device.id:
            raise ValueError(
                f"the speedup of {case.id} is taken over {case.single_device.id}, "
                f"not over {single_device.case_id}"
            )
        single_baseline = self._suite.baseline(case.single_device)
        self._note(
            baseline,
            is_held_against=why_incomparable(measurement, baseline) is None,
            is_speedup=why_incomparable(single_device, single_baseline) is None,
        )
        judgement = judge_speedup(
            measurement,
            single_device,
            baseline,
            single_baseline,
            tolerance_percent=self._suite.system_of(case).tolerance_percent,
            forced=self._suite.settings.gate,
            repeats=self._suite.fixed_repeats,
        )
        if self._suite.asks_control(judgement):
            arms, problem = self._interleaved(measurement, single_device)
            judgement = self._without_comparison(judgement, arms, problem) or confirm_speedup(
                judgement, arms[0], arms[1], baseline, single_baseline
            )
        return self._settle(judgement, measurement, single_device)

    def _baseline(self, measurement: Measurement) -> tuple[Case, Baseline | None]:
        case = Case.parse(measurement.case_id)
        if self._record is not None and case != self._record.case:
            raise ValueError(f"a test of {self._record.case.id} cannot judge {case.id}")
        return case, self._suite.baseline(case)

    def _note(
        self, baseline: Baseline | None, *, is_held_against: bool, is_speedup: bool = True
    ) -> None:
        """Note what there is to compare with. What is refused is shown nowhere as a baseline."""
        if baseline is None or self._record is None:
            return
        self._record.stored_baseline = stored = AcceptedNumbers.of(baseline)
        if is_held_against:
            self._record.accepted = stored if is_speedup else replace(stored, speedup=None)

    def _interleaved(self, *measurements: Measurement) -> tuple[list[InterleavedRuns], str | None]:
        """Runs of each case and of the accepted software in turn, or why there are fewer."""
        from pytest_dlperf.model.errors import BrokenError, CannotMeasureError

        taken: list[InterleavedRuns] = []
        try:
            for measurement in measurements:
                both = self._suite.interleaved(measurement)
                taken.append(both)
                if self._record is not None:
                    self._record.interleaved[measurement.case_id] = both
        except (CannotMeasureError, BrokenError) as error:
            return taken, f"the accepted software could not be run beside it: {error}"
        return taken, None

    def _without_comparison(
        self, judgement: Judgement, arms: Sequence[InterleavedRuns], problem: str | None
    ) -> Judgement | None:
        """The judgement where the two could not be compared; ``None`` where they can be."""
        for both in arms:
            for run in both.candidate.broken_runs:
                # All runs count: what is tested has broken.
                reason = f"{both.candidate.case_id}, run {run.run} beside the accepted software"
                return replace(
                    judgement,
                    verdict=Verdict(run.status.value),
                    reason=f"{reason}: {run.reason}",
                )
        for both in arms:
            for run in both.control.broken_runs:
                problem = (
                    f"the control arm says nothing: run {run.run} of the accepted software is "
                )
                problem += f"{run.status.value} ({run.reason})"
        if problem is None:
            return None
        if self._suite.settings.control is ControlArm.ALWAYS and judgement.verdict.passes:
            return replace(judgement, verdict=Verdict.INCONCLUSIVE, reason=problem)
        return replace(judgement, notes=(*judgement.notes, problem))

    def _settle(
        self, judgement: Judgement, measurement: Measurement, single_device: Measurement | None
    ) -> Judgement:
        suite = self._suite
        case = Case.parse(measurement.case_id)
        judgement = suite.with_acceptance(judgement, measurement, case, single_device)
        if self._record is not None:
            self._record.judge(judgement)
        if not judgement.passes(strict=suite.settings.strict):
            from pytest_dlperf.reports.failure import failure_message

            message = failure_message(
                judgement,
                measurement,
                single_device,
                cluster=suite.cluster.name,
                other_clusters=suite.other_clusters_with(case),
                interleaved=self._record.interleaved if self._record is not None else {},
            )
            pytest.fail(message, pytrace=False)
        return judgement

"""What a test asks for: a case, its measurement and the gate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.records import AcceptedNumbers, TestRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.gate.verdicts import Settled
    from pytest_dlperf.model.measurement import Measurement
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
        return self._judge(measurement)

    def speedup(self, measurement: Measurement, single_device: Measurement) -> Judgement:
        """Judge the speedup over one device.

        Raises:
            ValueError: The measurements are not of the test's case and of its single device.
        """
        return self._judge(measurement, single_device)

    def _judge(
        self, measurement: Measurement, single_device: Measurement | None = None
    ) -> Judgement:
        from pytest_dlperf.gate.verdicts import End, Question, settle

        suite, case = self._suite, Case.parse(measurement.case_id)
        if self._record is not None and case != self._record.case:
            raise ValueError(f"a test of {self._record.case.id} cannot judge {case.id}")
        if single_device is not None and single_device.case_id != case.single_device.id:
            raise ValueError(
                f"the speedup of {case.id} is taken over {case.single_device.id}, "
                f"not over {single_device.case_id}"
            )
        single = None
        if single_device is not None:
            single = End(single_device, suite.baseline(case.single_device))
        question = Question(End(measurement, suite.baseline(case)), suite.terms(case), single)
        settled = settle(question, suite.asked, suite.control_runs)
        judgement = settled.judgement
        if self._record is not None:
            note_settled(self._record, settled)
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


def note_settled(record: TestRecord, settled: Settled) -> None:
    """Note a judgement, and what there was to compare with: what is refused is shown nowhere."""
    case, single = settled.question.case, settled.question.single
    if case.baseline is not None:
        record.stored_baseline = stored = AcceptedNumbers.of(case.baseline)
        if case.why_incomparable is None:
            is_same = single is None or single.why_incomparable is None
            record.accepted = stored if is_same else replace(stored, speedup=None)
    if settled.control is not None:
        for both in settled.control.interleaved:
            record.interleaved[both.candidate.case_id] = both
    record.judge(settled.judgement)

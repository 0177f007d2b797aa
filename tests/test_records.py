"""What a test notes while it runs, what its session makes of it, and the words for that."""

import pytest
from msgspec.structs import replace
from results_makers import THROUGHPUT, judged, measured_case, unmeasured_case

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import SPEEDUP_METRIC
from pytest_dlperf.plugin.records import SessionRecords, TestNotes

ONE, TWO = (f"paddle-resnet50-fp32-b128-1n{devices}g" for devices in (1, 2))
CASE = Case.from_id(TWO)


def test_a_test_that_fails_for_another_reason_keeps_the_verdict_that_failed_already():
    notes = TestNotes(CASE, THROUGHPUT)
    notes.judged(judged(Verdict.PASS))
    notes.judged(judged(Verdict.REGRESSED, metric=SPEEDUP_METRIC))
    notes.failed("the test itself failed")
    verdicts = {name: each.verdict for name, each in notes.record.judgements.items()}
    assert verdicts == {"throughput": Verdict.PASS, "speedup": Verdict.REGRESSED}
    passed = TestNotes(CASE, THROUGHPUT)
    passed.judged(judged(Verdict.PASS))
    passed.failed("the test itself failed")
    assert passed.record.judgements["throughput"].verdict is Verdict.FAILED


def test_only_a_ratio_whose_own_case_was_measured_can_lack_its_reference():
    measurement = measured_case(TWO, 100.0).measurement
    assert measurement is not None
    reference = Case.from_id(ONE)
    notes = TestNotes(CASE, SPEEDUP_METRIC)
    assert not notes.lacks_reference(reference)
    notes.measured(measurement)
    assert notes.lacks_reference(reference)
    assert not notes.lacks_reference(CASE)


def test_a_verdict_is_explained_once_and_again_when_it_changes():
    notes = TestNotes(CASE, THROUGHPUT)
    notes.judged(judged(Verdict.REGRESSED))
    assert [each.verdict for each in notes.unexplained()] == [Verdict.REGRESSED]
    assert notes.unexplained() == []
    notes.judged(judged(Verdict.FAILED))
    assert [each.verdict for each in notes.unexplained()] == [Verdict.FAILED]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_test_is_unfinished_or_lost_with_its_worker(is_lost):
    records = SessionRecords()
    records.select([(CASE, "throughput"), (CASE, "speedup")])
    records.end(TestNotes(CASE, THROUGHPUT).record)
    if is_lost:
        records.lose(f"test_speedup.py::test_speedup[{TWO}]")
    [result] = records.results()
    assert result.is_whole is not is_lost
    assert result.unfinished == (() if is_lost else ("speedup",))


def test_what_was_not_measured_is_never_good():
    passed = measured_case(TWO, 100.0)
    assert passed.status is Verdict.PASS
    assert replace(passed, measurement=None).status is Verdict.NOT_MEASURED
    assert unmeasured_case(TWO, Verdict.PASS, "").status is Verdict.NOT_MEASURED

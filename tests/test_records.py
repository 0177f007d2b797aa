"""What a test notes while it runs, what its session makes of it, and the words for that."""

import pytest
from msgspec.structs import replace
from results_makers import THROUGHPUT, judged, measured_case, unmeasured_case

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import SPEEDUP_METRIC
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.plugin.records import SessionRecords, failed
from pytest_dlperf.plugin.records import judged as with_judgement

ONE, TWO = (f"paddle-resnet50-fp32-b128-1n{devices}g" for devices in (1, 2))
CASE = Case.from_id(TWO)


def test_a_test_that_fails_for_another_reason_keeps_the_verdict_that_failed_already():
    passed = with_judgement(CaseResult(case=CASE), judged(Verdict.PASS))
    regressed = with_judgement(passed, judged(Verdict.REGRESSED, metric=SPEEDUP_METRIC))
    assert failed(regressed, THROUGHPUT, "the test itself failed") == regressed
    judgements = failed(passed, THROUGHPUT, "the test itself failed").judgements
    assert judgements["throughput"].verdict is Verdict.FAILED


def test_what_tests_report_is_merged_to_the_worse():
    one, two = measured_case(ONE, 50.0), measured_case(TWO, 100.0, verdict=Verdict.REGRESSED)
    records = SessionRecords()
    records.select([(one.case, "throughput"), (CASE, "throughput"), (CASE, "speedup")])
    for result in (one, two, with_judgement(CaseResult(case=CASE), judged(Verdict.PASS))):
        records.add(result)
    first, second = records.results()
    assert first.measurement == second.reference == one.measurement
    assert second.measurement == two.measurement
    assert second.judgements["throughput"].verdict is Verdict.REGRESSED


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_test_is_unfinished_or_lost_with_its_worker(is_lost):
    records = SessionRecords()
    records.select([(CASE, "throughput"), (CASE, "speedup")])
    records.ended.add((CASE.id, "throughput"))
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

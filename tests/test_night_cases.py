"""What a summary shows of cases: which rows, what stands below them, their scaling, in words."""

from explained import moved_case
from msgspec.structs import replace
from results_makers import (
    MEMORY,
    STARTED,
    baseline_of,
    decided,
    judged,
    unmeasured_case,
    with_judgement,
)

from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, RuleName, throughput
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report.case_text import CaseText, has_failure
from pytest_dlperf.report.pieces import Listing, Role
from pytest_dlperf.report.remarks import absences, scaling

ID = "pytorch-resnet50-fp32-b128-dali+workers8-4n8g"


def result(
    verdict,
    *,
    case_id=ID,
    throughputs=(8940.3, 8468.23, 8781.78),
    speedup=None,
    memory=None,
):
    """A case of three runs, of a throughput of 8781.78, a speedup of 24 and 14653 MB."""
    runs = tuple(
        Run(
            run=number,
            metrics={"throughput": value, "peak_memory": 14653.0} if value else {},
            status=RunStatus.OK if value else RunStatus.INVALID,
            reason=None if value else "too few\nsteps",
        )
        for number, value in enumerate(throughputs, 1)
    )
    case = Case.from_id(case_id)
    metrics = (throughput("images/s"), MEMORY)
    measurement = Measurement(
        case_id=case_id, metrics=metrics, estimator=Estimator.PUBLISHED, runs=runs
    )
    found = CaseResult(
        case=case,
        measurement=measurement,
        reference=None
        if case.reference is None
        else Measurement(
            case_id=case.reference.id,
            metrics=metrics[:1],
            estimator=Estimator.PUBLISHED,
            runs=(Run(run=1, metrics={"throughput": 365.91}, status=RunStatus.OK),),
        ),
        accepted={
            name: baseline_of(number)
            for name, number in (("throughput", 9000.0), ("speedup", 24.88))
        },
        judgements={
            "throughput": judged(
                verdict, measured=8781.78, accepted=9000.0, difference_percent=-2.42
            )
        },
    )
    if speedup is not None:
        by = judged(
            speedup, metric=SPEEDUP_METRIC, measured=24.0, accepted=24.88, difference_percent=-3.54
        )
        found = with_judgement(found, by)
    if memory is not None:
        by = judged(
            memory, metric=MEMORY, measured=14653.0, accepted=14212.0, difference_percent=3.1
        )
        found = with_judgement(found, by)
    return found


def rows(found, *, every=False):
    """Metric and verdict of each row."""
    shown = CaseText(found, STARTED).rows(every=every)
    return [(row.metric, row.cells["verdict"]) for row in shown]


def below(found, *, every=False, with_failures=True, strict=False):
    case = CaseText(found, STARTED)
    told = [
        row
        for row in case.rows(every=every)
        if with_failures or not has_failure(found, row, strict=strict)
    ]
    return [text for one in case.below(told, every=every) for text in said(one)]


def said(one):
    yield f"{one.head} {' '.join(map(str, one.pieces))}" if isinstance(one, Listing) else str(one)


# --------------------------------------------------------------------------------- rows


def test_each_metric_that_does_not_pass_has_a_row_and_the_worst_is_the_first():
    odd = result(Verdict.PASS, speedup=Verdict.NO_BASELINE, memory=Verdict.REGRESSED)
    assert rows(odd) == [("peak_memory", "regressed"), ("speedup", "no_baseline; 1 pass")]
    cells = CaseText(odd, STARTED).rows()[0].cells
    assert (cells["median"], cells["unit"], cells["reference"]) == ("14653", "MB", "14212")


def test_of_a_case_in_order_or_broken_as_a_whole_the_first_metric_stands_for_all():
    assert rows(result(Verdict.PASS, speedup=Verdict.PASS)) == [("throughput", "2 pass")]
    broken = result(Verdict.PASS, throughputs=(8940.3, None))
    for metric in (throughput("images/s"), SPEEDUP_METRIC, MEMORY):
        verdict = Judgement(metric=metric, verdict=Verdict.INVALID, reason="too few steps")
        broken = with_judgement(broken, verdict)
    assert rows(broken) == [("throughput", "3 invalid")]


def test_the_verbose_see_every_metric_that_is_judged():
    good = result(Verdict.PASS, speedup=Verdict.PASS, memory=Verdict.PASS)
    assert [metric for metric, _ in rows(good, every=True)] == [
        "throughput", "speedup", "peak_memory"
    ]  # fmt: skip
    assert CaseText(good, STARTED).rows(every=True)[1].cells["of ideal"] == "75.0 %"
    assert len(rows(result(Verdict.PASS, speedup=Verdict.PASS), every=True)) == 2


def test_a_measured_case_without_a_verdict_says_so():
    assert rows(replace(result(Verdict.PASS), judgements={})) == [("throughput", "not judged")]


# ------------------------------------------------------------------------- what is below


def test_a_loss_has_since_when_and_what_came_with_it():
    """The failure has what is less suspicious."""
    assert below(moved_case("paddle-resnet50-fp32-b1-4n8g", -9.9))[:3] == [
        (
            "since Tuesday 2026-11-17, commit 1a2b3c4; last good Monday 2026-11-16, "
            "commit 9f8e7d6, 4 nights ago"
        ),
        "--step-delay-ms: accepted not set, tonight 1000, came with the loss",
        "throughput in images/s " + " ".join(f"{run}: 901.00" for run in range(1, 6)),
    ]


def test_what_a_failure_says_is_said_again_only_where_there_is_none():
    """What passes in spite of its loss has no failure."""
    shift = moved_case("paddle-resnet50-fp32-b1-2n8g", -9.9, verdict=Verdict.ENVIRONMENT_SHIFT)
    assert below(moved_case(ID, -9.9), with_failures=False) == []
    assert len(below(shift, with_failures=False)) == 3
    assert below(shift, with_failures=False, strict=True) == []
    # One row of two has failed.
    both = result(Verdict.REGRESSED, memory=Verdict.ENVIRONMENT_SHIFT)
    assert below(both, with_failures=False) == ["peak_memory in MB 1: 14653 2: 14653 3: 14653"]


def test_the_runs_of_good_cases_are_for_the_verbose():
    good = result(Verdict.PASS)
    assert below(good) == []
    assert below(good, every=True) == ["throughput in images/s 1: 8940.30 2: 8468.23 3: 8781.78"]


def test_broken_runs_are_explained_in_a_line_that_others_cannot_forge():
    broken = result(Verdict.INVALID, throughputs=(8940.3, None))
    assert below(broken) == [
        "throughput in images/s 1: 8940.30 2: invalid", "run 2: too few steps"
    ]  # fmt: skip
    case = CaseText(broken, STARTED)
    reason = case.below(case.rows())[-1]
    assert not isinstance(reason, Listing)
    assert reason.pieces[-1].role is Role.UNTRUSTED


def test_the_rules_own_number_and_the_accepted_one_stand_below_others():
    """The rule may leave strays out, and the last sessions lie where they lie."""
    strayed = result(Verdict.PASS)
    judged = decided(
        strayed.judgements["throughput"],
        reference=8600.0,
        difference_percent=-0.5,
        interval_percent=(-1.0, 0.0),
        rule=RuleName.SEQUENTIAL,
    )
    strayed = with_judgement(strayed, judged)
    cells = CaseText(strayed, STARTED).rows()[0].cells
    assert [cells[name] for name in ("median", "reference", "diff")] == [
        "8781.78", "8600.00", "+2.1 %"
    ]  # fmt: skip
    assert below(strayed, every=True)[-1] == (
        "throughput: the runs that count lie at 8557.00: -0.5 % (95 %: -1.0 to +0.0 %); "
        "accepted 9000.00"
    )


# ----------------------------------------------------------------------------- all cases


def test_scaling_names_its_kind_and_another_reference_topology():
    case = replace(
        Case.from_id("megatron-llama-bf16-gb128-s4096-tp2-4n8g"),
        reference_topology=Topology(1, 8),
    )
    [strong] = scaling([replace(result(Verdict.PASS), case=case)])
    assert str(strong.head) == "megatron-llama-bf16-gb128-s4096-tp2 over 1n8g, strong scaling:"
    assert [str(piece) for piece in strong.pieces] == ["4n8g 24.00 of 4 (600 %)"]


def test_skipped_cases_tell_each_reason_once():
    skipped = []
    for topology in ("1n1g", "4n8g"):
        case_id = f"pytorch-resnet50-fp32-b128-{topology}"
        reason = f"no logs of {case_id}; give DIR with {topology}/r50.log"
        skipped.append(unmeasured_case(case_id, Verdict.SKIPPED, reason))
    (told,) = absences(skipped, [Verdict.SKIPPED], most=1)
    first = skipped[0].case.id
    assert str(told) == (
        f"skipped: {first} and 1 more: no logs of {first}; give DIR with 1n1g/r50.log"
    )

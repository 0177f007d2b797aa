"""A session in words: its sentence, the order in which it is told, the roles of what it says."""

import pytest
import results_makers as make
from explained import MONDAY, SINCE_TUESDAY, TUESDAY, explained, moved_case
from msgspec.structs import replace
from told_sessions import case_id, expected, passing

from pytest_dlperf.history.series import CaseHistory, Drift
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import (
    Explanation,
    Judgement,
    PastSession,
    Verdict,
)
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report.markdown_text import rendered
from pytest_dlperf.report.overview import sentence_of
from pytest_dlperf.report.session import session_report
from pytest_dlperf.report.text import Piece, Role, cases_named, code, join, phrase, strong

NOW = replace(SINCE_TUESDAY, since=PastSession(at=make.STARTED), last_good=TUESDAY)


def reason_of(entry):
    [text] = [text for fact in entry.facts if fact.label == "reason" for text in fact.texts]
    return str(text)


def memory_case(batch):
    known = moved_case(case_id(batch), -1.0, None, Verdict.PASS)
    grown = make.judged(
        Verdict.REGRESSED, metric=make.MEMORY, measured=106, accepted=100, difference_percent=6.0
    )
    return make.with_judgement(known, grown)


@pytest.mark.parametrize(
    ("cases", "sentence"),
    [
        ([], "nothing was measured"),
        (passing(1), "the only case passes"),
        (passing(2), "both cases pass"),
        (passing(115), "all 115 cases pass"),
        (
            [*(moved_case(case_id(n), -n / 10, NOW) for n in (14, 15, 16)),
             *(moved_case(case_id(n), -n / 10) for n in (62, 63, 64)), *passing(109)],
            "6 of 115 cases got slower, 3 of them new; worst -6.4 %",
        ),
        ([moved_case(case_id(1), -9.9), *passing(1)],
         "1 of 2 cases got slower since Tuesday, -9.9 %"),
        ([memory_case(1), *passing(2)], "1 of 3 cases got worse, +6.0 %"),
        ([moved_case(case_id(1), 9.9, None, Verdict.IMPROVED), *passing(2)],
         "2 of 3 cases pass; 1 got faster, +9.9 %"),
        ([make.unmeasured_case(case_id(1), Verdict.HUNG, "no step"), memory_case(2)],
         "1 of 2 cases got worse, +6.0 %; 1 hung"),
        ([make.unmeasured_case(case_id(1), Verdict.FAILED, "exit code 1")],
         "nothing was measured: the only case failed"),
        ([expected(moved_case(case_id(1), -9.9), "#812"), *passing(1)],
         "1 of 2 cases passes; 1 failed as expected"),
    ],
)  # fmt: skip
def test_a_session_is_a_sentence(cases, sentence):
    assert str(sentence_of(make.session(*cases))) == sentence


def test_an_interrupted_session_says_so_first():
    results = replace(make.session(*passing(3)), interrupted=True)
    assert str(sentence_of(results)) == "interrupted: all 3 cases pass"


def test_the_sentence_says_since_when_a_case_has_no_number():
    def failed(number, since):
        broken = make.unmeasured_case(case_id(number), Verdict.FAILED, "exited with 3")
        return explained(broken, Explanation(since=since, last_good=MONDAY))

    now = PastSession(at=make.STARTED)
    one = make.session(failed(1, now), *passing(1))
    assert str(sentence_of(one)) == "1 of 2 cases failed (new)"
    both = make.session(failed(1, now), failed(2, TUESDAY), *passing(2))
    assert str(sentence_of(both)) == "2 of 4 cases failed, 1 of them new"


def test_what_is_new_comes_before_what_stands():
    session = session_report(
        make.session(
            moved_case(case_id(2), -30.0),
            moved_case(case_id(3), -20.0, NOW),
        )
    )
    assert [entry.case_ids for entry in session.bad] == [(case_id(n),) for n in (3, 2)]
    assert [entry.age for entry in session.bad] == [0, 2]


def test_hosts_to_act_on_stand_apart():
    results = replace(make.session(*passing(1)), unfit_hosts={"gpu07": ("GPU 3 is lost",)})
    session = session_report(results)
    assert [str(line) for line in session.urgent] == ["host gpu07 cannot be used: GPU 3 is lost"]


def test_what_is_wrong_with_a_host_is_said_once():
    reason = f"{case_id(1)} needs 2 fit hosts, and there is 1. Not fit:\n  gpu07: GPU 3 is lost"
    case = make.unmeasured_case(case_id(1), Verdict.FAILED, reason)
    results = replace(make.session(case, *passing(1)), unfit_hosts={"gpu07": ("GPU 3 is lost",)})
    (entry,) = session_report(results).bad
    assert reason_of(entry) == "needs 2 fit hosts, and there is 1. Not fit: gpu07"


def test_a_reason_has_the_last_line_of_the_log_right_behind_how_it_ended():
    reason = (
        "run 1: the program ended with exit code 2 on node 0; the log holds no step; "
        "the log of node 0, /runs/1.log, ends with:\nusage: train.py\ntrain.py: error: no --fused"
    )
    case = make.unmeasured_case(case_id(1), Verdict.FAILED, reason)
    (entry,) = session_report(make.session(case)).bad
    assert reason_of(entry) == (
        "run 1: the program ended with exit code 2 on node 0: train.py: error: no --fused; "
        "the log holds no step; log /runs/1.log"
    )


def test_cases_whose_logs_end_alike_are_told_together():
    def broken(number, words):
        name, folder = case_id(number), f"/runs/new suite/{number}"
        reason = (
            f"{name}, run 1: the trainer ended with exit code 2 on node 1; the log of node 1, "
            f"{folder}/net_1/node1.log, ends with:\nusage: train.py\n{words}"
        )
        run = Run(run=1, status=RunStatus.FAILED, log=f"{folder}/net_1.log")
        judgement = Judgement(metric=make.THROUGHPUT, verdict=Verdict.FAILED, reason=reason)
        return CaseResult(
            case=Case.from_id(name),
            measurement=Measurement(
                case_id=name, metrics=(make.THROUGHPUT,), estimator=Estimator.STEADY, runs=(run,)
            ),
            judgements={"throughput": judgement},
        )

    lines = ("no --fused", "no --fused", "out of memory")
    results = make.session(*(broken(number, line) for number, line in enumerate(lines, 1)))
    together, alone = session_report(results).bad
    assert (together.case_ids, alone.case_ids) == ((case_id(1), case_id(2)), (case_id(3),))
    assert reason_of(together).endswith("net_1/node1.log; and 1 more like it")


def test_a_drift_is_told_with_the_step_beside_it():
    drift = Drift(since="2026-10-20T22:00", days=30, percent=-14.0, percent_per_week=-3.0)
    histories = {
        case_id(n): {
            "throughput": CaseHistory(
                case_id=case_id(n), metric="throughput", unit="", better=None, points=(),
                drift=drift,
            )
        }
        for n in (1, 500)
    }  # fmt: skip
    session = make.report(make.session(moved_case(case_id(1), -30.0), *passing(1)), histories)
    assert str(session.bad[0].facts[-1].texts[0]) == (
        f"throughput of {case_id(1)} drifts -3.0 % a week since 2026-10-20 (30 days), "
        "-14.0 % in all"
    )
    (fact,) = session.facts
    assert case_id(500) in str(fact)


def test_what_passes_again_is_a_fact():
    again = [explained(one, Explanation(red_since=TUESDAY)) for one in passing(2)]
    session = session_report(make.session(*again))
    (fact,) = session.facts
    assert str(fact) == (
        f"passes again, was red since Tuesday 2026-11-17: {case_id(500)}, {case_id(501)}"
    )
    assert str(session.sentence) == "both cases pass again"
    some = session_report(make.session(*again, *passing(4)[2:]))
    assert str(some.sentence) == "all 4 cases pass, 2 of them again"


# ---------------------------------------------------------------------------------- pieces


def test_a_string_without_a_role_is_untrusted():
    text = phrase("{} of {} says {}", 6, strong("all"), "<b>")
    assert [piece.role for piece in text.pieces] == [
        Role.NUMBER, Role.WORD, Role.STRONG, Role.WORD, Role.UNTRUSTED,
    ]  # fmt: skip
    assert rendered(text) == "6 of **all** says `<b>`"


def test_what_says_nothing_is_not_joined():
    assert str(join("; ", ["a", phrase(""), "b"])) == "a; b"
    assert not join("; ", [phrase(""), ""])


def test_a_text_is_cut_within_its_pieces():
    text = phrase("{}: {}", strong("regressed"), "x" * 50)
    assert str(text.cut(20)) == "regressed: xxxxxx..."
    assert text.cut(20).pieces[0].role is Role.STRONG
    assert text.cut(100) is text


def test_cases_and_code_and_links_are_marked_in_markdown():
    assert rendered(cases_named(["a", "b", "c"], 2)) == "`a`, `b` and 1 more"
    linked = phrase(
        "by {}, {}", Piece("the [new] loader", address="https://x.example/1"), code("-x")
    )
    assert rendered(linked) == "by [`the [new] loader`](https://x.example/1), `-x`"

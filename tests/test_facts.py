"""Facts of a metric, its subject line, and the message of a test of it that fails."""

import pytest
import results_makers as make
from explained import DELAY, moved_case
from msgspec.structs import replace

from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    Judgement,
    PastSession,
    Verdict,
)
from pytest_dlperf.report import words
from pytest_dlperf.report.facts import Fact, case_facts, case_title, facts
from pytest_dlperf.report.failure import FailureText, headline, reason_facts, why_facts
from pytest_dlperf.report.text import phrase

NOW = "2026-11-20T03:00:00+01:00"
"""A Friday; in UTC it is Friday too."""
TUESDAY = Explanation(
    since=PastSession(at="2026-11-17T03:00:00+01:00", commit="1a2b3c4d5e6f"),
    last_good=PastSession(at="2026-11-16T03:00:00+01:00", commit="9f8e7d6c5b4a"),
    days=4,
    days_at_level=4,
)


def subject(*judged, **more):
    return str(words.subject(*judged, **more))


def regressed(difference_percent=-9.9, verdict=Verdict.REGRESSED):
    """A throughput that has moved so far."""
    return make.judged(
        verdict,
        measured=1000 + 10 * difference_percent,
        accepted=1000.0,
        difference_percent=difference_percent,
    )


def since(day):
    """New since this day."""
    return replace(TUESDAY, since=PastSession(at=f"{day}T03:00:00+01:00"))


# the subject line


@pytest.mark.parametrize(
    ("day", "said"),
    [
        ("2026-11-20", "(new)"),
        ("2026-11-19", "since Thursday"),
        ("2026-11-17", "since Tuesday"),
        ("2026-11-14", "since Saturday"),
        # A week ago its weekday would be today's.
        ("2026-11-13", "since 2026-11-13"),
        ("2026-11-03", "since 2026-11-03"),
        # A clock was wrong.
        ("2026-11-21", "since 2026-11-21"),
    ],
)
def test_the_subject_line_has_verdict_number_and_age(day, said):
    assert subject(regressed(), since(day), NOW) == f"regressed -9.9 % {said}"


@pytest.mark.parametrize("explanation", [None, Explanation()])
def test_where_nobody_knows_since_when_the_subject_line_has_the_number(
    explanation,
):
    assert subject(regressed(), explanation, NOW) == "regressed -9.9 %"


def test_each_verdict_says_what_has_become_of_the_number():
    worse = regressed()
    slower = replace(make.MEMORY, name="step_time_p50")
    measured = make.judged(
        Verdict.REGRESSED, metric=slower, measured=106, accepted=100, difference_percent=6.0
    )
    said = {
        subject(judgement, TUESDAY, NOW)
        for judgement in (
            measured,
            regressed(8.1, Verdict.IMPROVED),
            regressed(-1.2, Verdict.ENVIRONMENT_SHIFT),
            Judgement(metric=make.THROUGHPUT, verdict=Verdict.HUNG, reason="no output for 60 s"),
            # What was broken before it was measured has no difference, whatever was accepted.
            Judgement(metric=make.THROUGHPUT, verdict=Verdict.FAILED, accepted=1000.0),
            replace(worse, recorded=True),
            replace(worse, expected="#812"),
        )
    }
    assert said == {
        "regressed +6.0 % since Tuesday",
        "improved +8.1 % since Tuesday, not accepted",
        "environment_shift -1.2 % since Tuesday",
        "hung since Tuesday",
        "failed since Tuesday",
        "regressed -9.9 % since Tuesday, accepted",
        "regressed -9.9 % since Tuesday, expected",
    }


def test_cases_that_are_told_together_have_the_least_and_the_most():
    others = [regressed(-11.2), regressed(-10.0)]
    said = subject(regressed(), TUESDAY, NOW, others=others)
    assert said == "regressed -9.9 to -11.2 % since Tuesday"


# since when


def onset(explanation):
    return {label: str(text) for label, text in words.onset(explanation, NOW)}


def test_since_when_it_is_so_has_days_commits_and_nights():
    assert onset(Explanation()) == {}
    good = "Monday 2026-11-16, commit 9f8e7d6, 4 days ago"
    assert onset(TUESDAY) == {"since": "Tuesday 2026-11-17, commit 1a2b3c4", "last good": good}
    some = replace(TUESDAY, days_at_level=2, red_since=PastSession(at="2026-11-15T03:00:00+01:00"))
    assert onset(some) == {
        "since": "Tuesday 2026-11-17, on 2 days, commit 1a2b3c4",
        "red since": "Sunday 2026-11-15",
        "last good": good,
    }
    assert onset(replace(TUESDAY, last_good=None))["last good"] == "no session is known"
    assert onset(Explanation(last_good=TUESDAY.last_good, days=4)) == {"last good": good}
    new = Explanation(since=PastSession(at=NOW), last_good=TUESDAY.since, days=1)
    assert onset(new) == {
        "since": "this session, Friday 2026-11-20",
        "last good": "Tuesday 2026-11-17, commit 1a2b3c4, 1 day ago",
    }


def test_of_one_day_the_hour_is_told():
    at = "2026-11-20T00:15:00+00:00"
    known = Explanation(since=PastSession(at=NOW), last_good=PastSession(at=at), days=0)
    assert onset(known)["last good"] == "earlier today, 01:15"


def test_a_loss_without_a_new_commit_says_so():
    night = PastSession(at="2026-11-16T03:00:00+01:00", commit="1a2b3c4d5e6f")
    assert "at the same commit" in onset(replace(TUESDAY, last_good=night))["last good"]
    # What was not committed may have been anything.
    dirty = PastSession(at="2026-11-17T03:00:00+01:00", commit="1a2b3c4d5e6f+train.py")
    for text in onset(replace(TUESDAY, since=dirty, last_good=dirty)).values():
        assert "commit 1a2b3c4 with changes in train.py" in text


def test_a_commit_of_any_length_fits_a_line():
    assert len(words.short_commit("v1-" + "x" * 1_000_000)) == 48


def test_days_are_those_of_the_place_of_the_session():
    late = Explanation(since=PastSession(at="2026-11-17T23:30:00+00:00"))
    assert subject(regressed(), late, NOW) == "regressed -9.9 % since Wednesday"


# what differs


def lines(*differences, verdict=Verdict.REGRESSED):
    judgement = regressed(verdict=verdict)
    return [str(words.difference_text(one, judgement)) for one in differences]


def software(name, *sides):
    accepted, last_good, now = sides
    return Difference(
        kind=DifferenceKind.SOFTWARE,
        name=name,
        accepted=accepted,
        last_good=last_good,
        now=now,
    )


def test_a_difference_is_a_line_with_the_sides_that_say_something():
    some = (DELAY, software("torch", "2.12", "2.13", "2.14"), software("x", None, "1", None))
    assert lines(*some) == [
        "--step-delay-ms: accepted not set, now 1000, came with the loss",
        "software torch: accepted 2.12, last good 2.13, now 2.14",
        "software x: last good 1, now unknown",
    ]


@pytest.mark.parametrize(
    ("verdict", "came"), [(Verdict.IMPROVED, "with the gain"), (Verdict.FAILED, "with the failure")]
)
def test_what_it_came_with_is_the_verdicts(verdict, came):
    [line] = lines(DELAY, verdict=verdict)
    assert line.endswith(f"came {came}")


def test_long_values_keep_what_differs():
    flags = [f"--xla_gpu_{n}={'01'[n % 2]}" for n in range(20)]
    before, after = " ".join(flags), " ".join([*flags[:9], "--xla_gpu_9=77", *flags[10:]])
    [line] = lines(software("XLA_FLAGS", "-", before, after))
    assert "xla_gpu_9=1 " in line
    assert "xla_gpu_9=77 " in line
    assert len(line) < 150
    # What differs all along is cut.
    [line] = lines(software("digest", "a" * 500, None, "b" * 500))
    assert len(line) < 150
    assert "…" in line


# who


def test_who_accepted_is_named_without_an_address():
    acceptance = Acceptance(
        at="2026-11-03T03:00:00+01:00",
        by="Ana Diaz <ana@example.org>",
        commit="abcdef123456",
        reason="the new loader\nis slower " + "x" * 500,
    )
    said = str(words.accepted_by(acceptance, NOW))
    assert said.startswith(
        "by Ana Diaz on Tuesday 2026-11-03, commit abcdef1: the new loader is slower"
    )
    assert len(said) < 300
    assert str(words.accepted_by(Acceptance(at=acceptance.at), NOW)) == "on Tuesday 2026-11-03"
    assert not words.accepted_by(None, NOW)


# of a case, and of a test that fails


def case_of_two(why):
    """A case whose memory has grown too, for this reason."""
    grown = make.judged(
        Verdict.REGRESSED, metric=make.MEMORY, measured=106, accepted=100, difference_percent=6.0
    )
    both = make.with_judgement(moved_case("tiny-mlp-fp32-b4-1n2g", -9.9, TUESDAY), grown)
    return replace(both, explanations={"throughput": TUESDAY, "peak_memory": why})


def test_metrics_of_a_case_share_a_text_where_they_say_the_same():
    [alike] = [it for it in case_facts(case_of_two(TUESDAY), NOW) if it.label == "since"]
    assert list(map(str, alike.texts)) == ["Tuesday 2026-11-17, commit 1a2b3c4"]
    later = Explanation(since=PastSession(at=NOW))
    [apart] = [it for it in case_facts(case_of_two(later), NOW) if it.label == "since"]
    assert list(map(str, apart.texts)) == [
        "throughput: Tuesday 2026-11-17, commit 1a2b3c4",
        "peak_memory: this session, Friday 2026-11-20",
    ]  # fmt: skip


def test_the_title_of_a_case_names_the_metric_that_is_not_the_first():
    both = case_of_two(None)
    assert str(case_title(both, NOW)).endswith(" since Tuesday: tiny-mlp-fp32-b4-1n2g")
    known = make.with_judgement(both, replace(regressed(), verdict=Verdict.PASS))
    known = replace(both, judgements={**known.judgements, "throughput": regressed(0, Verdict.PASS)})
    assert str(case_title(known, NOW)) == "regressed +6.0 %: peak_memory of tiny-mlp-fp32-b4-1n2g"


def test_of_many_texts_the_others_are_counted():
    fact = Fact("differs", tuple(phrase("p{}", n) for n in range(8)))
    assert list(map(str, fact.first(5))) == [*(f"p{n}" for n in range(5)), "and 3 more"]
    assert fact.first(8) == fact.texts


def test_what_was_held_against_nothing_says_what_to_do():
    nothing = Judgement(metric=make.THROUGHPUT, verdict=Verdict.NO_BASELINE, measured=9.0)
    case = make.with_judgement(make.measured_case("tiny-mlp-fp32-b4-1n2g", 9.0), nothing)
    found = {fact.label: str(fact.texts[0]) for fact in facts(case.metrics()["throughput"], NOW)}
    assert set(found) == {"measured", "reason"}
    assert "--dlperf-create-baselines" in found["reason"]


def head(judgement, explanation=None):
    return str(headline(judgement, explanation, NOW, case_id="case"))


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        # Not the commit of now, for Tuesday's loss.
        ("9f8e7d6c5b4a", "c4196e5a9b78", "a new commit of bench"),
        ("c4196e5a9b78", "c4196e5a9b78+train.py", "uncommitted changes in train.py"),
        ("c4196e5a9b78+lib/a.py", "c4196e5a9b78", "undone changes in lib/a.py"),
    ],
)
def test_the_first_line_says_what_of_a_checkout_is_new(before, now, news):
    commit = Difference(
        kind=DifferenceKind.COMMIT, name="working_directory", checkout="bench",
        last_good=before, now=now, came_with_it=True,
    )  # fmt: skip
    said = head(regressed(), replace(TUESDAY, differences=(commit,)))
    assert said.endswith(f"throughput; {news} came with the loss")
    known = replace(commit, came_with_it=False)
    assert head(regressed(), replace(TUESDAY, differences=(known,))).endswith(": throughput")


def test_a_reason_stands_in_the_first_line_and_below_only_where_that_has_not_all_of_it():
    def told(reason):
        judgement = Judgement(metric=make.THROUGHPUT, verdict=Verdict.FAILED, reason=reason)
        first = headline(judgement, None, NOW, case_id="case")
        below = reason_facts(judgement, first, case_id="case")
        return str(first), [(fact.label, list(map(str, fact.texts))) for fact in below]

    assert told("case, run 6: exited with 3") == ("failed: throughput; run 6: exited with 3", [])
    reason = "exited with 3\nthe last line\nof a log"
    assert told(reason) == (
        "failed: throughput; exited with 3 of a log", [("reason", reason.split("\n"))]
    )  # fmt: skip
    remedy = f"give {'them ' * 50}"
    assert told(f"no logs of it; {remedy}") == (
        "failed: throughput; no logs of it", [("reason", [f"no logs of it; {remedy}"])]
    )  # fmt: skip
    long = f"exited with {'3' * 300}"
    assert told(long)[1] == [("reason", [long])]


def test_a_text_of_its_own_is_followed_by_since_when():
    assert list(why_facts(regressed(), None, NOW)) == []
    [since] = why_facts(regressed(), Explanation(last_good=TUESDAY.last_good), NOW)
    assert (since.label, str(since.texts[0])) == ("last good", "Monday 2026-11-16, commit 9f8e7d6")


def test_no_line_of_a_failure_is_a_command_to_a_ci():
    text = str(FailureText("##[error]x\n  ::error::y\x1b\na ##[error]z", ("test_x.py", 3, "x")))
    assert "##[" not in text
    assert "\x1b" not in text
    assert not [line for line in text.split("\n") if line.lstrip().startswith("::")]

"""Words for why a number moved: the subject line, since when, what differs, who accepted."""

import pytest
import results_makers as make
from explained import DELAY
from msgspec.structs import replace

from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    Judgement,
    PastNight,
    Verdict,
)
from pytest_dlperf.report import explanation_words as words
from pytest_dlperf.report.case_text import CaseText
from pytest_dlperf.report.session import difference_texts, first_differences

TONIGHT = "2026-11-20T03:00:00+01:00"
"""A Friday; in UTC it is Friday too."""
TUESDAY = Explanation(
    since=PastNight(at="2026-11-17T03:00:00+01:00", commit="1a2b3c4d5e6f"),
    last_good=PastNight(at="2026-11-16T03:00:00+01:00", commit="9f8e7d6c5b4a"),
    nights=4,
    nights_at_level=4,
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
    return replace(TUESDAY, since=PastNight(at=f"{day}T03:00:00+01:00"))


# the subject line


@pytest.mark.parametrize(
    ("day", "said"),
    [
        ("2026-11-20", "tonight"),
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
    assert subject(regressed(), since(day), TONIGHT) == f"regressed -9.9 % {said}"


@pytest.mark.parametrize("explanation", [None, Explanation()])
def test_where_nobody_knows_since_when_the_subject_line_has_the_number(
    explanation,
):
    assert subject(regressed(), explanation, TONIGHT) == "regressed -9.9 %"


def test_each_verdict_says_what_has_become_of_the_number():
    worse = regressed()
    slower = replace(make.MEMORY, name="step_time_p50")
    measured = make.judged(
        Verdict.REGRESSED, metric=slower, measured=106, accepted=100, difference_percent=6.0
    )
    said = {
        subject(judgement, TUESDAY, TONIGHT)
        for judgement in (
            measured,
            regressed(8.1, Verdict.IMPROVED),
            regressed(-1.2, Verdict.ENVIRONMENT_SHIFT),
            Judgement(metric=make.THROUGHPUT, verdict=Verdict.HUNG, reason="no output for 60 s"),
            # What was broken before it was measured has no difference, whatever was accepted.
            Judgement(metric=make.THROUGHPUT, verdict=Verdict.FAILED, accepted=1000.0),
            replace(worse, recorded=True),
            replace(worse, excused=True),
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
    said = subject(regressed(), TUESDAY, TONIGHT, others=others)
    assert said == "regressed -9.9 to -11.2 % since Tuesday"


def test_the_title_of_a_case_names_the_metric_that_is_not_the_first():
    case = make.measured_case("tiny-mlp-fp32-b4-1n2g", 99.0, more={make.MEMORY: [106.0]})
    memory = make.judged(
        Verdict.REGRESSED, metric=make.MEMORY, measured=106, accepted=100, difference_percent=6.0
    )
    both = make.with_judgement(case, memory)

    title = str(CaseText(both, TONIGHT).title)
    assert title == "regressed +6.0 %: peak_memory of tiny-mlp-fp32-b4-1n2g"
    slower = make.with_judgement(both, regressed())
    assert str(CaseText(slower, TONIGHT).title) == "regressed -9.9 %: tiny-mlp-fp32-b4-1n2g"


# since when


@pytest.mark.parametrize(
    ("explanation", "said"),
    [
        (None, ""),
        (Explanation(), ""),
        (
            TUESDAY,
            (
                "since Tuesday 2026-11-17, commit 1a2b3c4; last good Monday 2026-11-16, "
                "commit 9f8e7d6, 4 nights ago"
            ),
        ),
        (
            replace(TUESDAY, nights_at_level=2),
            (
                "since Tuesday 2026-11-17, on 2 nights, commit 1a2b3c4; last good Monday "
                "2026-11-16, commit 9f8e7d6, 4 nights ago"
            ),
        ),
        (
            replace(TUESDAY, red_since=PastNight(at="2026-11-15T03:00:00+01:00")),
            (
                "since Tuesday 2026-11-17, commit 1a2b3c4; was red since Sunday 2026-11-15; "
                "last good Monday 2026-11-16, commit 9f8e7d6, 4 nights ago"
            ),
        ),
        (
            Explanation(since=PastNight(at=TONIGHT), last_good=TUESDAY.since, nights=1),
            (
                "new tonight, Friday 2026-11-20; last good Tuesday 2026-11-17, commit 1a2b3c4, "
                "1 night ago"
            ),
        ),
        (
            replace(TUESDAY, last_good=None),
            "since Tuesday 2026-11-17, commit 1a2b3c4; no good night is known",
        ),
        (
            Explanation(last_good=TUESDAY.last_good, nights=4),
            "last good Monday 2026-11-16, commit 9f8e7d6, 4 nights ago",
        ),
    ],
)
def test_the_since_line_says_days_commits_and_nights(explanation, said):
    assert words.since_line(explanation, TONIGHT) == said


def test_of_one_day_the_hour_is_told():
    at = "2026-11-20T00:15:00+00:00"
    known = Explanation(since=PastNight(at=TONIGHT), last_good=PastNight(at=at), nights=0)
    assert words.since_line(known, TONIGHT) == (
        "new tonight, Friday 2026-11-20; last good earlier today, 01:15"
    )


def test_a_loss_without_a_new_commit_says_so():
    night = PastNight(at="2026-11-16T03:00:00+01:00", commit="1a2b3c4d5e6f")
    assert "the same commit" in words.since_line(replace(TUESDAY, last_good=night), TONIGHT)
    # What was not committed may have been anything.
    dirty = PastNight(at="2026-11-17T03:00:00+01:00", commit="1a2b3c4d5e6f+train.py")
    said = words.since_line(replace(TUESDAY, since=dirty, last_good=dirty), TONIGHT)
    assert said.count("commit 1a2b3c4 with changes in train.py") == 2


def test_a_commit_of_any_length_fits_a_line():
    assert len(words.short_commit("v1-" + "x" * 1_000_000)) == 48


def test_days_are_those_of_the_place_of_the_session():
    late = Explanation(since=PastNight(at="2026-11-17T23:30:00+00:00"))
    assert subject(regressed(), late, TONIGHT) == "regressed -9.9 % since Wednesday"


# what differs


def lines(*differences, verdict=Verdict.REGRESSED):
    return list(map(str, difference_texts(differences, regressed(verdict=verdict))))


def software(name, *sides):
    accepted, last_good, tonight = sides
    return Difference(
        kind=DifferenceKind.SOFTWARE,
        name=name,
        accepted=accepted,
        last_good=last_good,
        tonight=tonight,
    )


def test_a_difference_is_a_line_with_the_sides_that_say_something():
    some = (DELAY, software("torch", "2.12", "2.13", "2.14"), software("x", None, "1", None))
    assert lines(*some) == [
        "--step-delay-ms: accepted not set, tonight 1000, came with the loss",
        "software torch: accepted 2.12, last good 2.13, tonight 2.14",
        "software x: last good 1, tonight unknown",
    ]


@pytest.mark.parametrize(
    ("verdict", "came"), [(Verdict.IMPROVED, "with the gain"), (Verdict.FAILED, "with the failure")]
)
def test_what_it_came_with_is_the_verdicts(verdict, came):
    [line] = lines(DELAY, verdict=verdict)
    assert line.endswith(f"came {came}")


def test_many_differences_are_counted_after_the_first():
    eight = [software(f"p{n}", "1", "1", "2") for n in range(8)]
    told = list(map(str, first_differences(difference_texts(eight, regressed()), 5)))
    assert [line.split()[1] for line in told[:5]] == [f"p{n}:" for n in range(5)]
    assert told[5:] == ["and 3 more differences"]


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


def test_what_stands_in_values_and_names_is_made_safe():
    [line] = lines(software("a\nb", "##[error]x", None, "\033[2J"))
    assert line.isprintable()
    assert "##[" not in line


# who


def test_who_accepted_is_named_without_an_address():
    acceptance = Acceptance(
        at="2026-11-03T03:00:00+01:00",
        by="Ana Diaz <ana@example.org>",
        commit="abcdef123456",
        reason="the new loader\nis slower " + "x" * 500,
    )
    said = words.accepted_by(acceptance, TONIGHT)
    assert said.startswith(
        "by Ana Diaz on Tuesday 2026-11-03, commit abcdef1: the new loader is slower"
    )
    assert len(said) < 300
    assert words.accepted_by(Acceptance(at=acceptance.at), TONIGHT) == "on Tuesday 2026-11-03"
    assert not words.accepted_by(None, TONIGHT)

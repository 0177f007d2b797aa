"""The night in ten seconds: what mails, chats and comments say of a session."""

import re
from itertools import chain

import pytest
import results_makers as make
from explained import (
    DELAY,
    MONDAY,
    SINCE_TUESDAY,
    TORCH,
    TUESDAY,
    explained,
    moved_case,
)
from msgspec.structs import replace

from pytest_dlperf.model.judgement import (
    Explanation,
    PastSession,
    Verdict,
)
from pytest_dlperf.notices.brief import LONGEST_TEXT, notice_of

RUN = "https://github.com/ours/ours/actions/runs/7"
SURROUNDINGS = {"commit": "1a2b3c4d5e6f", "ci_run": RUN}
NOW = PastSession(at=make.STARTED)


def tell(results):
    return notice_of(make.report(results))


def case_id(batch):
    return f"paddle-resnet50-fp32-b{batch}-4n8g"


GOOD = [make.measured_case(case_id(batch), 1000.0) for batch in (501, 502)]
FAILED = explained(
    make.unmeasured_case(case_id(7), Verdict.FAILED, f"{case_id(7)}, run 1: exited with 3"),
    Explanation(since=NOW, last_good=TUESDAY, days=1),
)


def test_another_night_or_another_cause_is_told_apart_and_the_worst_comes_first():
    other_night = replace(SINCE_TUESDAY, since=NOW, last_good=TUESDAY)
    other_cause = replace(SINCE_TUESDAY, differences=(replace(DELAY, now="50"),))
    brief = tell(
        make.session(
            *GOOD,
            moved_case(case_id(1), -9.9),
            moved_case(case_id(2), -30.0, other_night),
            moved_case(case_id(3), -20.0, other_cause),
            moved_case(case_id(4), -10.0),
            FAILED,
        )
    )

    titles = [line for line in brief.text.splitlines() if line and not line.startswith(" ")]
    assert titles == [
        "office, Friday 2026-11-20",
        (
            "to do: look first at --step-delay-ms: it came with the loss, nothing else "
            f"(in {case_id(2)})"
        ),
        f"failed (new): {case_id(7)}",
        f"regressed -30.0 % (new): {case_id(2)}",
        f"regressed -20.0 % since Tuesday: {case_id(3)}",
        (
            "2 cases regressed -9.9 to -10.0 % since Tuesday: throughput of "
            f"{case_id(4)}, {case_id(1)}"
        ),
    ]
    assert "  reason run 1: exited with 3\n" in brief.text


def test_other_metrics_of_a_case_are_named_beside_the_worst():
    memory = make.judged(
        Verdict.REGRESSED, metric=make.MEMORY, measured=106, accepted=100, difference_percent=6.0
    )
    brief = tell(make.session(make.with_judgement(moved_case(case_id(1), -9.9), memory)))
    assert brief.text.endswith("  also peak_memory +6.0 %")


def test_a_strict_session_tells_of_what_it_fails():
    results = make.session(
        moved_case(case_id(3), -3.0, None, Verdict.ENVIRONMENT_SHIFT),
        *(
            make.unmeasured_case(case_id(n), Verdict.SKIPPED, f"no logs of {case_id(n)}")
            for n in (4, 5)
        ),
    )
    text = tell(replace(results, strict=True)).text
    assert f"\nenvironment_shift -3.0 %: {case_id(3)}\n" in text
    assert f"\n2 cases skipped: throughput of {case_id(4)}, {case_id(5)}\n" in text
    assert text.endswith("and 1 more like it")


@pytest.mark.parametrize("kinds", [1, 200])
def test_it_stays_short_however_bad_the_night_was(kinds):
    def cause(number):
        differences = [
            replace(TORCH, name=f"p{number % kinds}-{n}" * 9, now="x" * 9999) for n in range(9)
        ]
        return replace(SINCE_TUESDAY, last_good=MONDAY, differences=tuple(differences))

    cases = (
        (
            moved_case(case_id(n), -10 - n / 10, cause(n)),
            make.unmeasured_case(case_id(1000 + n), Verdict.FAILED, f"{n % kinds} " * 999),
            make.unmeasured_case(case_id(2000 + n), Verdict.SKIPPED, f"{n % kinds} " * 999),
        )
        for n in range(1, 201)
    )
    brief = tell(make.session(*chain(*cases), environment=SURROUNDINGS))

    assert len(brief.text) <= LONGEST_TEXT
    assert len(brief.markdown) <= 2 * LONGEST_TEXT
    assert len(brief.subject) <= 160
    assert "; 200 failed" in brief.subject
    assert RUN in brief.text
    assert ("more cases" in brief.text) == (kinds > 1)


def test_texts_of_others_become_no_markup_and_no_command():
    hostile = "::error::x\n<b>[a](http://evil.example)</b> @everyone ##[error]"
    cause = replace(SINCE_TUESDAY, differences=(replace(DELAY, name=hostile, now=hostile),))
    results = make.session(
        moved_case(case_id(1), -9.9, cause),
        make.unmeasured_case(case_id(2), Verdict.FAILED, hostile),
        environment={"commit": hostile, "ci_run": f"javascript:{hostile}"},
    )
    brief = tell(replace(results, cluster=hostile))

    for text in (brief.subject, brief.text, brief.markdown):
        assert "##[" not in text
        assert not any(line.lstrip(" -*").startswith("::") for line in text.splitlines())
    outside_code = re.sub(r"(`+).*?\1", "", brief.markdown)
    assert not set("<@") & set(outside_code)
    assert "](javascript:" not in brief.markdown

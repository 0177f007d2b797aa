"""The life of a baseline through the command line: created, kept, changed, extended."""

from __future__ import annotations

import difflib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from histories import case_result, session
from nights import Nights

from pytest_dlperf.history.store import History

if TYPE_CHECKING:
    from suites import Suite

pytestmark = pytest.mark.slow

CREATE, UPDATE, EXTEND = (f"--dlperf-{word}-baselines" for word in ("create", "update", "extend"))


def entries(nights: Nights) -> dict[str, dict[str, Any]]:
    """What is accepted by topology and metric; a bare number is the accepted one."""
    return {
        topology: {
            name: said if isinstance(said, dict) else {"accepted": said}
            for name, said in entry.items()
        }
        for topology, entry in yaml.safe_load(nights.text)["entries"]["fp32-b4"].items()
    }


def levels(nights: Nights) -> dict[str, float]:
    """The accepted throughputs by topology."""
    return {name: entry["throughput"]["accepted"] for name, entry in entries(nights).items()}


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_the_life_of_an_accepted_number(suite: Suite, workers: list[str]) -> None:
    nights = Nights(suite)
    first = nights.usual("first")
    slow = nights.usual("slow", of_1n1g=0.9, of_1n2g=0.9)

    # Missing fails; recorded passes. What is written comes from the workers.
    assert suite.run(*first).ret == 1
    assert suite.run(*first, CREATE, *workers).ret == 0
    accepted = nights.text

    # Slower fails, says how it would be accepted, and leaves the file alone.
    regressed = suite.run(*slow)
    assert regressed.ret == 1
    regressed.stdout.fnmatch_lines(["*accept*--dlperf-update-baselines --dlperf-reason*"])
    assert nights.text == accepted

    # Lower numbers need a reason.
    refused = suite.run(*slow, UPDATE)
    assert refused.ret == 1
    refused.stdout.fnmatch_lines(["*not accepted: a worse number needs --dlperf-reason*"])
    assert nights.text == accepted

    # With one they are accepted, and the reason stays.
    updated = suite.run(*slow, UPDATE, "--dlperf-reason", "NCCL needs more memory", *workers)
    assert updated.ret == 0
    updated.stdout.fnmatch_lines(
        [
            "tiny-mlp-fp32-b4-1n1g *samples/s *-* %  *  NCCL needs more memory",
            "tiny-mlp-fp32-b4-1n2g *samples/s *-* %  *  NCCL needs more memory",
        ]
    )
    assert entries(nights)["1n1g"]["acceptance"]["reason"] == "NCCL needs more memory"

    # What was accepted is what the gate holds nights against from now on.
    assert suite.run(*slow).ret == 0
    again = suite.run(*first)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["*improved*"])


def test_a_number_within_its_tolerance_is_not_rewritten(suite: Suite) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE)
    before = nights.text

    result = suite.run(*nights.usual("faster", of_1n1g=1.03, of_1n2g=1.03), UPDATE)

    assert result.ret == 0
    assert nights.text == before


def test_update_records_what_is_new_and_leaves_the_rest(suite: Suite) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE, "-k", "tiny and 1n1g")
    before = nights.text

    assert suite.run(*nights.usual("first"), UPDATE).ret == 0

    assert set(entries(nights)) == {"1n1g", "1n2g"}
    assert not [line for line in changed_lines(before, nights.text) if line.startswith("-")]


def test_a_part_touches_nothing_else(suite: Suite) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE)
    before = entries(nights)
    faster = nights.usual("faster", of_1n1g=1.2, of_1n2g=1.2)

    assert suite.run(*faster, UPDATE, "-k", "throughput and tiny and 1n2g").ret == 0

    after = entries(nights)
    assert after["1n1g"] == before["1n1g"]
    old, new = (one["1n2g"]["throughput"]["accepted"] for one in (before, after))
    assert new > old * 1.1
    assert after["1n2g"]["speedup"] == before["1n2g"]["speedup"]


def test_comments_and_layout_survive_an_update(suite: Suite) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE)
    head, throughput, rest = nights.text.partition("      throughput:")
    text = f"# Ask Anna before you touch this.\n{head}{throughput}{rest}# The end.\n"
    text = text.replace("    1n2g:", "    1n2g:   # the one with the odd cable")
    nights.file.write_bytes(text.encode())

    assert suite.run(*nights.usual("faster", of_1n2g=1.2), UPDATE).ret == 0

    removed = [line for line in changed_lines(text, nights.text) if line.startswith("-")]
    topology = text.split("    1n2g:")[1]
    assert removed
    assert all(line[2:] in topology for line in removed)
    for comment in ("# Ask Anna before you touch this.\n", "# the one with the odd cable\n"):
        assert comment in nights.text
    assert nights.text.endswith("# The end.\n")


def rolling(nights: Nights, *, of_1n1g: float = 1.0) -> None:
    """Accept a usual night, with five more nights behind it at so many times the level."""
    later = [nights.numbers(f"later-{number}", of_1n1g=of_1n1g) for number in range(5)]
    nights.accept(nights.numbers("first"), *later)


def test_extended_baselines_bring_the_sequential_rule(suite: Suite) -> None:
    nights = Nights(suite)
    numbers = [nights.numbers(name) for name in ("first", "second", "third")]
    nights.accept(*numbers)
    accepted = levels(nights)

    few, results = suite.judge(*nights.usual("fourth"), EXTEND, cluster="local")

    assert few.ret == 0
    assert results["cases"][0]["metrics"]["throughput"]["gate"]["decision"]["rule"] == "tolerance"
    few.stdout.fnmatch_lines(["added this session's runs to the baselines of 2 cases in *"])
    assert levels(nights) == accepted
    assert [len(entry["throughput"]["sessions"]) for entry in entries(nights).values()] == [3, 3]

    # Three runs are enough for a usual night, and no more logs are read.
    usual, results = suite.judge(*nights.usual("usual"), cluster="local")
    assert usual.ret == 0
    for case in results["cases"]:
        assert case["metrics"]["throughput"]["gate"]["decision"]["rule"] == "sequential"
        assert 2 <= case["metrics"]["throughput"]["gate"]["decision"]["min_detectable_percent"] < 4
        assert [run["run"] for run in case["runs"]] == [1, 2, 3]
        assert case["available_runs"] == 5
    usual.stdout.fnmatch_lines(["    3 of 5 logs were read: they decide"])


def test_a_loss_is_seen_that_the_tolerance_would_let_pass(suite: Suite) -> None:
    nights = Nights(suite)
    rolling(nights)

    slow, results = suite.judge(*nights.usual("slow", runs=9, of_1n2g=0.96), cluster="local")

    assert slow.ret == 1
    verdicts = {
        case["topology"]: case["metrics"]["throughput"]["verdict"] for case in results["cases"]
    }
    assert verdicts == {"1n1g": "pass", "1n2g": "regressed"}
    slow.stdout.fnmatch_lines(["  gate       sequential: sees a loss of * 9 times out of 10"])


def test_the_table_shows_the_number_that_the_difference_is_taken_from(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    rolling(nights, of_1n1g=1.04)

    result, results = suite.judge(*nights.usual("usual", of_1n1g=1.04), cluster="local")

    gate = results["cases"][0]["metrics"]["throughput"]["gate"]
    shown = f"{gate['decision']['reference']:.2f}"
    row = next(line for line in result.outlines if shown in line)
    median = results["cases"][0]["metrics"]["throughput"]["median"]
    assert f"{100 * (median / gate['decision']['reference'] - 1):+.1f} %" in row


def test_the_same_runs_count_once(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("first"))
    second = nights.usual("second")
    assert suite.run(*second, EXTEND).ret == 0
    assert len(entries(nights)["1n1g"]["throughput"]["sessions"]) == 1
    before = nights.text

    again = suite.run(*second, EXTEND)

    assert again.ret == 0
    again.stdout.fnmatch_lines(["the baseline of *: these very runs have been added before"])
    assert nights.text == before


def test_only_six_sessions_roll(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    later = [nights.numbers(f"later-{number}") for number in range(6)]
    nights.accept(nights.numbers("first"), *later)
    before = [session["at"] for session in entries(nights)["1n1g"]["throughput"]["sessions"]]

    assert suite.run(*nights.usual("seventh"), EXTEND).ret == 0

    after = [session["at"] for session in entries(nights)["1n1g"]["throughput"]["sessions"]]
    assert after[:-1] == before[1:]
    assert after[-1] not in before


def test_a_regression_needs_a_reason_also_above_the_accepted_number(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    rolling(nights, of_1n1g=1.07)
    before = nights.text
    back = nights.usual("back", runs=9, of_1n1g=1.01)

    refused = suite.run(*back, UPDATE)
    assert refused.ret == 1
    refused.stdout.fnmatch_lines(["*not accepted: a worse number needs --dlperf-reason*"])
    assert nights.text == before
    assert suite.run(*back, UPDATE, "--dlperf-reason", "a bug fix that costs").ret == 0
    assert "sessions" not in entries(nights)["1n1g"]["throughput"]


def test_what_is_better_than_lately_only_does_not_move_the_number(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    rolling(nights, of_1n1g=0.96)
    before = nights.text
    usual = nights.usual("usual", runs=9)

    improved = suite.run(*usual, UPDATE)
    assert improved.ret == 0
    improved.stdout.fnmatch_lines(["*improved*"])
    assert nights.text == before
    # It is one of the nights that later ones are held against.
    assert suite.run(*usual, EXTEND).ret == 0
    assert len(entries(nights)["1n1g"]["throughput"]["sessions"]) == 6


def test_who_improves_is_told_how_to_accept_it(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("accepted"))
    begun = [datetime.now().astimezone() - timedelta(days=days) for days in (3, 2, 1)]
    with History.open(suite.path / ".dlperf" / "history.sqlite3") as history:
        for number, (at, level) in enumerate(zip(begun, (400.0, 600.0, 601.0), strict=True)):
            night = [case_result("tiny-mlp-fp32-b4-1n1g", [level] * 3, launched=False)]
            history.add(session(number, night, started=at.isoformat(timespec="seconds")))

    better = suite.run(*nights.usual("fast", of_1n1g=1.5))
    usual = suite.run(*nights.usual("usual"))

    assert (better.ret, usual.ret) == (0, 0)
    better.stdout.fnmatch_lines(
        [f"better than what is accepted: *1n1g (since {begun[1]:%A}); --dlperf-update-baselines *"]
    )
    usual.stdout.no_fnmatch_line("better than what is accepted*")


def test_what_regressed_or_improved_is_not_added(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first"), CREATE)
    before = nights.text

    assert suite.run(*nights.usual("slow", of_1n1g=0.9), EXTEND).ret == 1
    improved = suite.run(*nights.usual("fast", of_1n1g=1.1), EXTEND)
    assert improved.ret == 0
    improved.stdout.fnmatch_lines(["the accepted throughput of *stays as it is: it has improved*"])
    assert nights.text == before


@pytest.mark.parametrize("option", [CREATE, UPDATE])
def test_runs_far_apart_are_not_accepted(suite: Suite, option: str) -> None:
    nights = Nights(suite, ["1n1g"])
    if option == UPDATE:
        suite.run(*nights.usual("first"), CREATE)
    before = nights.text if nights.file.exists() else None

    result = suite.run(*nights.night("wild", {"1n1g": [500, 620, 550, 700, 480]}), option)

    assert result.ret == 1
    result.stdout.fnmatch_lines(["*not accepted: its runs differ by * %*'tolerance_percent' in *"])
    assert (nights.text if nights.file.exists() else None) == before


def test_a_speedup_over_a_broken_device_is_not_accepted(suite: Suite) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE)
    before = nights.text
    faster = nights.usual("faster", of_1n2g=1.2)
    log = suite.path / "nights" / "faster" / "1n1g" / "mlp_b4_fp32_2.log"
    log.write_text(log.read_text(encoding="utf-8")[:200], encoding="utf-8")

    result = suite.run(*faster, UPDATE)

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["the baseline of tiny-mlp-fp32-b4-1n2g stays as it is: a part of the case did not *"]
    )
    assert nights.text == before


def test_a_reason_without_an_update_is_a_mistake(suite: Suite) -> None:
    result = suite.run("--dlperf-reason", "because")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*give --dlperf-update-baselines too*"])


def test_a_regression_cannot_be_extended_or_created_away(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first"), CREATE)
    before = nights.text
    for option in (CREATE, EXTEND):
        assert suite.run(*nights.usual("slow", of_1n1g=0.8), option).ret == 1
    assert nights.text == before


def test_the_results_file_tells_what_was_accepted(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first"), CREATE)

    _, results = suite.judge(*nights.usual("fast", of_1n1g=1.2), UPDATE, cluster="local")

    (change,) = results["baseline_changes"]
    assert change["case_id"] == "tiny-mlp-fp32-b4-1n1g"
    assert change["old"] == pytest.approx(400, rel=0.02)
    assert change["new"] == pytest.approx(480, rel=0.02)
    (case,) = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "improved"
    assert case["metrics"]["throughput"]["gate"]["recorded"] is True


def test_another_rule_adds_nothing_that_the_usual_one_calls_slower(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    rolling(nights)
    before = nights.text
    slow = nights.usual("slow", runs=9, of_1n1g=0.965)

    result = suite.run(*slow, EXTEND, "--dlperf-gate", "tolerance")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["*by the rule that its baseline allows it is worse"])
    assert nights.text == before


def test_a_few_runs_are_no_session_to_add(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("first"))
    before = nights.text

    result = suite.run(*nights.usual("short", runs=3), EXTEND)

    result.stdout.fnmatch_lines(["*stays as it is: there are 3 runs, and 4 are needed to be added"])
    assert nights.text == before


def test_two_runs_far_apart_are_no_number(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("first"))
    before = nights.text

    result = suite.run(*nights.night("two", {"1n1g": [500, 900]}), UPDATE)

    assert result.ret == 1
    result.stdout.fnmatch_lines(["*not accepted: its 2 runs lie 80.0 % apart; *"])
    assert nights.text == before


def test_no_speedup_is_recorded_over_a_device_that_is_slow(suite: Suite) -> None:
    nights = Nights(suite)
    usual = nights.numbers("first")
    nights.accept({"1n1g": usual["1n1g"]})
    before = nights.text
    night = nights.usual("slow", of_1n1g=0.8)

    result = suite.run(*night, CREATE, "-k", "tiny and 1n2g")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["*not accepted: its reference is regressed"])
    assert nights.text == before


def test_what_no_test_has_judged_is_not_recorded(suite: Suite) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE, "-k", "throughput and tiny")
    assert [set(entry) & {"throughput", "speedup"} for entry in entries(nights).values()] == [
        {"throughput"},
        {"throughput"},
    ]

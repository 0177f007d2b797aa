"""The life of a baseline through the command line: created, kept, changed, extended."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from nights import Nights

if TYPE_CHECKING:
    from suites import Suite

CREATE, UPDATE, EXTEND = (f"--dlperf-{word}-baselines" for word in ("create", "update", "extend"))


def entries(nights: Nights) -> dict[str, Any]:
    return dict(yaml.safe_load(nights.text)["entries"]["fp32-b4"])


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_the_life_of_an_accepted_number(suite: Suite, workers: list[str]) -> None:
    nights = Nights(suite)
    first = nights.usual("first")
    slow = nights.usual("slow", of_1n1g=0.9, of_1n2g=0.9)

    # Missing fails; recorded passes.
    assert suite.run(*first, *workers).ret == 1
    assert suite.run(*first, CREATE, *workers).ret == 0
    accepted = nights.text

    # Slower fails, says how it would be accepted, and leaves the file alone.
    regressed = suite.run(*slow, *workers)
    assert regressed.ret == 1
    regressed.stdout.fnmatch_lines(["*accept*--dlperf-update-baselines --dlperf-reason*"])
    assert nights.text == accepted

    # Lower numbers need a reason.
    refused = suite.run(*slow, UPDATE, *workers)
    assert refused.ret == 1
    refused.stdout.fnmatch_lines(["*not accepted: *needs --dlperf-reason*"])
    assert nights.text == accepted

    # With one they are accepted, and the reason stays.
    updated = suite.run(*slow, UPDATE, "--dlperf-reason", "NCCL needs more memory", *workers)
    assert updated.ret == 0
    updated.stdout.fnmatch_lines(
        [
            "tiny-mlp-fp32-b4-1n1g *samples/s *-* %  NCCL needs more memory",
            "tiny-mlp-fp32-b4-1n2g *samples/s *-* %  NCCL needs more memory",
        ]
    )
    assert entries(nights)["1n1g"]["accepted"]["reason"] == "NCCL needs more memory"

    # What was accepted is what the gate holds nights against from now on.
    assert suite.run(*slow, *workers).ret == 0
    again = suite.run(*first, *workers)
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
    assert after["1n2g"]["throughput"] > before["1n2g"]["throughput"] * 1.1
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


def test_extended_baselines_bring_the_sequential_rule(suite: Suite, workers: list[str]) -> None:
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE, *workers)
    pinned = {topology: entry["throughput"] for topology, entry in entries(nights).items()}
    for number in range(3):
        result = suite.run(*nights.usual(f"later-{number}"), EXTEND, *workers)
        assert result.ret == 0
    result.stdout.fnmatch_lines(["added this session's runs to the baselines of 2 cases in *"])
    assert {name: entry["throughput"] for name, entry in entries(nights).items()} == pinned
    assert [len(entry["sessions"]) for entry in entries(nights).values()] == [3, 3]

    # Three runs are enough for a usual night, and no more logs are read.
    usual, results = suite.judge(*nights.usual("usual"), *workers, cluster="local")
    assert usual.ret == 0
    for case in results["cases"]:
        assert case["gate"]["throughput"]["rule"] == "sequential"
        assert 2 <= case["gate"]["throughput"]["smallest_visible_percent"] < 4
        assert [run["run"] for run in case["runs"]] == [1, 2, 3]

    # A loss that the tolerance of 5 % would let pass is seen.
    slow, results = suite.judge(
        *nights.usual("slow", runs=9, of_1n2g=0.96), *workers, cluster="local"
    )
    assert slow.ret == 1
    verdicts = {case["topology"]: case["verdict"]["throughput"] for case in results["cases"]}
    assert verdicts == {"1n1g": "pass", "1n2g": "regressed"}
    slow.stdout.fnmatch_lines(["  gate       sequential: sees a drop of * 9 times out of 10"])


def test_only_six_sessions_roll(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first"), CREATE)
    for number in range(7):
        assert suite.run(*nights.usual(f"later-{number}"), EXTEND).ret == 0
    assert len(entries(nights)["1n1g"]["sessions"]) == 6


def test_what_regressed_or_improved_is_not_added(suite: Suite) -> None:
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first"), CREATE)
    before = nights.text

    assert suite.run(*nights.usual("slow", of_1n1g=0.9), EXTEND).ret == 1
    improved = suite.run(*nights.usual("fast", of_1n1g=1.1), EXTEND)
    assert improved.ret == 1
    improved.stdout.fnmatch_lines(["the baseline of *stays as it is: it has improved*"])
    assert nights.text == before


@pytest.mark.parametrize("option", [CREATE, UPDATE])
def test_runs_far_apart_are_not_accepted(suite: Suite, option: str) -> None:
    nights = Nights(suite, ["1n1g"])
    if option == UPDATE:
        suite.run(*nights.usual("first"), CREATE)
    before = nights.text if nights.file.exists() else None

    result = suite.run(*nights.night("wild", {"1n1g": [500, 620, 550, 700, 480]}), option)

    assert result.ret == 1
    result.stdout.fnmatch_lines(["*not accepted: its runs differ by * %*"])
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
    assert case["verdict"]["throughput"] == "improved"
    assert case["gate"]["throughput"]["recorded"] is True

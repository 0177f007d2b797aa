"""Numbers of another machine are not compared, and what was measured on is kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from trainers import SYSTEM, TinySystem

if TYPE_CHECKING:
    from pathlib import Path

    from suites import Suite

SELECT = ["-k", "tiny and 1n1g", "--dlperf-repeats", "1"]


def file_of(suite: Suite) -> Path:
    return suite.path / "baselines" / "local" / f"{SYSTEM}.yaml"


def entry(suite: Suite) -> dict[str, Any]:
    text = file_of(suite).read_text(encoding="utf-8")
    return dict(yaml.safe_load(text)["entries"]["fp32-b4"]["1n1g"])


def on_another_machine(suite: Suite) -> None:
    """Make the accepted number one of another machine."""
    text = file_of(suite).read_text(encoding="utf-8")
    device = re.compile(r"(machine: .*?device: )[^,}\n]+", re.DOTALL)
    other, count = device.subn(r"\g<1>Abacus 3000", text)
    assert count == 1
    file_of(suite).write_text(other, encoding="utf-8")


def test_an_accepted_number_keeps_where_it_comes_from(suite: Suite) -> None:
    TinySystem(suite)
    suite.pytester.run("git", "init", "-q", ".")
    suite.pytester.run("git", "add", "bench_tests")
    suite.pytester.run(
        "git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "x"
    )

    assert suite.run(*SELECT, "--dlperf-create-baselines").ret == 0

    kept = entry(suite)
    assert set(kept["machine"]) >= {"device", "devices_per_node"}
    accepted = kept["acceptance"]
    head = suite.pytester.run("git", "rev-parse", "--short=12", "HEAD").outlines[0]
    assert accepted["commit"] == head
    assert accepted["hosts"] == ["localhost"]
    assert accepted["logs"].startswith("sha256:")
    assert kept["throughput"]["runs"] == {1: 400.0}


def test_a_checkout_with_changes_says_so(suite: Suite) -> None:
    TinySystem(suite)
    suite.pytester.run("git", "init", "-q", ".")
    suite.pytester.run("git", "add", "bench_tests")
    suite.pytester.run(
        "git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "x"
    )
    own = suite.path / "bench_tests" / "systems" / "own.yaml"
    own.write_text(own.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")

    assert suite.run(*SELECT, "--dlperf-create-baselines").ret == 0

    assert entry(suite)["acceptance"]["commit"].endswith("+changes")


def test_another_machine_has_no_baseline_and_both_are_named(suite: Suite) -> None:
    TinySystem(suite)
    suite.run(*SELECT, "--dlperf-create-baselines")
    on_another_machine(suite)

    result, results = suite.judge(*SELECT, cluster="local")

    assert result.ret == 1
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "no_baseline"
    device = results["cases"][0]["fingerprint"]["machine"]["device"]
    result.stdout.fnmatch_lines(["no_baseline: throughput; *", f"*{device}*Abacus 3000*"])
    # What could not be held against tonight stands nowhere beside it.
    assert results["cases"][0]["metrics"]["throughput"]["accepted"] is None
    assert "Abacus 3000" in results["cases"][0]["metrics"]["throughput"]["reason"]
    head = next(line for line in result.outlines if re.match("case +metric", line))
    assert "reference" not in head


def test_a_number_of_another_machine_is_replaced_only_by_an_update(suite: Suite) -> None:
    TinySystem(suite)
    suite.run(*SELECT, "--dlperf-create-baselines")
    on_another_machine(suite)
    before = entry(suite)

    assert suite.run(*SELECT, "--dlperf-create-baselines").ret == 1
    assert entry(suite) == before
    assert suite.run(*SELECT, "--dlperf-update-baselines").ret == 0
    assert entry(suite)["machine"]["device"] != "Abacus 3000"
    assert suite.run(*SELECT).ret == 0

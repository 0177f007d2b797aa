"""The life of a first baseline: missing fails, recorded passes, and it is that of its machine."""

import os
import re

import pytest
import yaml
from other_users import OTHER, needs_root
from trainers import SYSTEM, TinySystem

pytestmark = pytest.mark.in_process

ONCE = ("--dlperf-repeats", "1")

# The life of a first baseline: missing fails, recorded passes, and from then on it gates


def baseline_file(suite):
    return suite.path / "baselines" / "local" / f"{SYSTEM}.yaml"


def test_the_life_of_a_first_baseline(suite, workers):
    tiny = TinySystem(suite)
    select = ["-k", "tiny", *ONCE]

    missing = suite.run(*select)
    assert missing.ret == 1
    missing.assert_outcomes(failed=5)
    missing.stdout.fnmatch_lines(
        ["no_baseline: throughput", "to do: record the first number: --dlperf-create-baselines"]
    )
    assert not baseline_file(suite).exists()

    recorded = suite.run(*select, "--dlperf-create-baselines", *workers)
    assert recorded.ret == 0
    recorded.stdout.fnmatch_lines(["recorded the baselines of 3 cases in *gated against them"])
    text = baseline_file(suite).read_text(encoding="utf-8")
    entries = yaml.safe_load(text)["entries"]["fp32-b4"]
    assert list(entries) == ["1n1g", "1n2g", "2n1g"]
    assert entries["1n2g"]["throughput"]["accepted"] == pytest.approx(1131.37, rel=1e-4)
    assert entries["1n2g"]["speedup"]["accepted"] == pytest.approx(2.82843, rel=1e-4)

    same = suite.run(*select)
    assert same.ret == 0

    tiny.behave("0.02")
    slower = suite.run(*select, "--dlperf-create-baselines")
    assert slower.ret == 1
    slower.stdout.fnmatch_lines(["regressed -50.0 %*: throughput", "*worse by 50.0 %; *"])

    assert baseline_file(suite).read_text(encoding="utf-8") == text


def test_a_broken_measurement_is_never_recorded(suite):
    tiny = TinySystem(suite)
    tiny.behave("0.01 die-at-6")

    result = suite.run("-k", "tiny and 1n1g", *ONCE, "--dlperf-create-baselines")

    assert result.ret == 1
    assert not baseline_file(suite).exists()


def test_a_part_of_the_matrix_records_that_part(suite):
    TinySystem(suite)
    suite.run("-k", "throughput and tiny and 1n1g", *ONCE, "--dlperf-create-baselines")
    before = baseline_file(suite).read_text(encoding="utf-8")

    result = suite.run("-k", "tiny and 2n1g", *ONCE, "--dlperf-create-baselines")

    assert result.ret == 0
    after = baseline_file(suite).read_text(encoding="utf-8")
    assert set(yaml.safe_load(after)["entries"]["fp32-b4"]) == {"1n1g", "2n1g"}
    # What has come beside the entry is the kind of its second metric.
    assert after.replace("  speedup: {unit: x, better: higher}\n", "", 1).startswith(before)


def test_a_speedup_measured_later_joins_its_baseline(suite):
    TinySystem(suite)
    suite.run("-k", "throughput and tiny and 2n1g", *ONCE, "--dlperf-create-baselines")

    assert suite.run("-k", "tiny and 2n1g", *ONCE).ret == 1
    assert suite.run("-k", "tiny and 2n1g", *ONCE, "--dlperf-create-baselines").ret == 0
    assert suite.run("-k", "tiny and 2n1g", *ONCE).ret == 0


def test_numbers_that_cannot_be_written_fail_the_session(suite):
    TinySystem(suite)
    (suite.path / "baselines" / "local").write_text("in the way", encoding="utf-8")

    result = suite.run("-k", "throughput and tiny and 1n1g", *ONCE, "--dlperf-create-baselines")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["no baseline was recorded in *"])


@needs_root
@pytest.mark.parametrize("name", ["baselines/.schema", ".dlperf"])
def test_nothing_is_written_where_a_link_of_another_user_leads(suite, name):
    TinySystem(suite)
    elsewhere, link = suite.path / "elsewhere", suite.path / name
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    os.lchown(link, OTHER, OTHER)

    result = suite.run("-k", "throughput and tiny and 1n1g", *ONCE, "--dlperf-create-baselines")

    assert result.ret == 1
    assert f"{link} is a link of another user; remove it" in str(result.stdout)
    assert list(elsewhere.iterdir()) == []


def test_judged_logs_do_not_claim_to_be_of_this_machine(suite):
    TinySystem(suite)
    suite.run("-k", "throughput and tiny and 1n1g", *ONCE, "--dlperf-run-dir", "night")
    suite.run(
        "-k", "throughput and tiny and 1n1g", "--dlperf-logs", f"{SYSTEM}=night",
        "--dlperf-create-baselines",
    )  # fmt: skip
    assert "host" not in baseline_file(suite).read_text(encoding="utf-8")


# Numbers of another machine are not compared, and what was measured on is kept

SELECT = ["-k", "tiny and 1n1g", *ONCE]


def entry(suite):
    text = baseline_file(suite).read_text(encoding="utf-8")
    return dict(yaml.safe_load(text)["entries"]["fp32-b4"]["1n1g"])


def on_another_machine(suite):
    """Make the accepted number one of another machine."""
    text = baseline_file(suite).read_text(encoding="utf-8")
    device = re.compile(r"(machine: .*?device: )[^,}\n]+", re.DOTALL)
    other, count = device.subn(r"\g<1>Abacus 3000", text)
    assert count == 1
    baseline_file(suite).write_text(other, encoding="utf-8")


def test_an_accepted_number_keeps_where_it_comes_from(suite):
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
    assert kept["throughput"]["runs"] == {1: 400.0}


def test_another_machine_has_no_baseline_and_both_are_named(suite):
    TinySystem(suite)
    suite.run(*SELECT, "--dlperf-create-baselines")
    on_another_machine(suite)

    result, results = suite.judge(*SELECT, cluster="local")

    assert result.ret == 1
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "no_baseline"
    device = results["cases"][0]["measurement"]["fingerprint"]["machine"]["device"]
    result.stdout.fnmatch_lines(["no_baseline: throughput; *", f"*{device}*Abacus 3000*"])
    # What could not be held against tonight stands nowhere beside it.
    assert results["cases"][0]["metrics"]["throughput"]["accepted"] is None
    assert "Abacus 3000" in results["cases"][0]["metrics"]["throughput"]["reason"]
    head = next(line for line in result.outlines if re.match("case +metric", line))
    assert "reference" not in head


def test_a_number_of_another_machine_is_replaced_only_by_an_update(suite):
    TinySystem(suite)
    suite.run(*SELECT, "--dlperf-create-baselines")
    on_another_machine(suite)
    before = entry(suite)

    assert suite.run(*SELECT, "--dlperf-create-baselines").ret == 1
    assert entry(suite) == before
    assert suite.run(*SELECT, "--dlperf-update-baselines").ret == 0
    assert entry(suite)["machine"]["device"] != "Abacus 3000"
    assert suite.run(*SELECT).ret == 0

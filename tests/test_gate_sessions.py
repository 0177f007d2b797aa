"""What the gate makes of whole sessions: of small losses, and of a metric without noise."""

import pytest
from nights import Nights
from trainers import SYSTEM

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

CASE = ["-k", "tiny and 1n1g"]
# A loss of 1.5 %: each step takes so many times as long.
SLOWER = ["--dlperf-set", f"{SYSTEM}.env.TINY_SLOWER=1.01523"]
CONTROL = f"""\
control:
  description: the software of last month
  vars: {{{SYSTEM}: {{env: {{TINY_SLOWER: "%s"}}}}}}
"""


def with_six_sessions(suite, control):
    """The tiny system with thirty accepted runs that differ by 0.3 %."""
    nights = Nights(suite, ["1n1g"])
    runs = [398.4, 399.2, 400.0, 400.8, 401.6]
    nights.accept(*[{"1n1g": runs}] * 6)
    cluster = nights.file.parent / "cluster.yaml"
    cluster.write_text(cluster.read_text(encoding="utf-8") + control, encoding="utf-8")
    return nights


@pytest.mark.parametrize(
    ("accepted_software", "arguments", "verdict", "tolerance_percent"),
    [
        ("1", [], "regressed", 1.2),
        ("1", ["--dlperf-control", "never"], "pass", 2.0),
        (None, [], "pass", 2.0),
        # The accepted software is as slow tonight.
        ("1.0152", [], "environment_shift", 1.2),
        # It cannot be told from what is tested, so nothing is confirmed.
        ("1.01523", [], "pass", 2.0),
    ],
    ids=["confirmed", "never", "none named", "not confirmed", "cannot run"],
)
def test_a_loss_of_one_and_a_half_percent(
    suite,
    accepted_software,
    arguments,
    verdict,
    tolerance_percent,
):
    with_six_sessions(suite, CONTROL % accepted_software if accepted_software else "")

    _, results = suite.judge(*CASE, *SLOWER, *arguments, cluster="local")

    found = results["cases"][0]["metrics"]["throughput"]
    assert found["difference_percent"] == pytest.approx(-1.5, abs=0.05)
    assert found["verdict"] == verdict
    decision = results["cases"][0]["judgements"]["throughput"]["decision"]
    assert decision["tolerance_percent"] == pytest.approx(tolerance_percent)


def test_no_control_arm_can_follow_logs(suite):
    nights = with_six_sessions(suite, CONTROL % "1")

    _, results = suite.judge(*nights.night("tonight", {"1n1g": [394.0] * 9}), cluster="local")

    judgement = results["cases"][0]["judgements"]["throughput"]
    assert judgement["verdict"] == "pass"
    assert judgement["decision"]["tolerance_percent"] == pytest.approx(2.0)


MEMORY = """\
  peak_memory: {record: 'max allocated: (?P<value>[0-9.]+) MB', over: run, unit: MB, better: lower}
"""


@pytest.mark.parametrize(
    ("megabytes", "verdict"), [(14290, "pass"), (14600, "regressed"), (13800, "improved")]
)
def test_memory_that_no_run_changes_is_judged_from_two_percent(suite, megabytes, verdict):
    nights = Nights(suite, ["1n1g"])
    nights.declare(MEMORY)
    printed = "max allocated: {} MB\n".format
    accepted = suite.run(*nights.usual("a", printed=printed(14212)), "--dlperf-create-baselines")
    assert accepted.ret == 0
    tonight = nights.usual("tonight", printed=printed(megabytes))

    _, results = suite.judge(*tonight, "-k", "tiny and peak_memory", cluster="local")

    found = results["cases"][0]["metrics"]["peak_memory"]
    assert (found["median"], found["verdict"]) == (megabytes, verdict)

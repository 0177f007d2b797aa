"""Baselines whose session is killed, or not alone: the old file stands, or the new one does."""

import signal
from contextlib import ExitStack

import pytest
import yaml
from nights import Nights
from sessions import in_background

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import find_cluster

pytestmark = pytest.mark.slow

CREATE, UPDATE = "--dlperf-create-baselines", "--dlperf-update-baselines"

# Kills the process that writes just before its n-th file takes its place, which is just after the
# one before it has.
KILLER = """\
import os, pathlib, signal

def pytest_configure(config):
    replace, count = pathlib.Path.replace, 0

    def replace_or_die(self, target):
        nonlocal count
        if "baselines" in str(target):
            count += 1
            if count == int(os.environ["DIE_BEFORE"]):
                os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    pathlib.Path.replace = replace_or_die
"""


def accepted(suite):
    """The numbers as the loader reads them, by topology."""
    cluster = find_cluster(suite.path / "baselines", "local")
    found = load_baselines(cluster, "tiny-mlp")
    return {topology: entry["throughput"].accepted for (_, topology), entry in found.items()}


@pytest.mark.parametrize("option", [CREATE, UPDATE])
def test_a_session_killed_between_two_writes_leaves_a_whole_file(suite, monkeypatch, option):
    nights = Nights(suite)
    usual = nights.usual("usual")
    if option == UPDATE:
        suite.run(*nights.usual("first", of_1n1g=0.8, of_1n2g=0.8), CREATE)
    old = accepted(suite)
    (suite.path / "killer.py").write_text(KILLER, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(suite.path))
    for number in range(1, 10):
        monkeypatch.setenv("DIE_BEFORE", str(number))
        result = suite.run(*usual, option, "-p", "killer")
        if result.ret == 0:
            break
        assert result.ret == -signal.SIGKILL
        assert accepted(suite) == old
    assert number > 1, "no session was killed"
    # The last one was no longer killed: its numbers are there, and the next night is held to them.
    assert accepted(suite)["1n1g"] == pytest.approx(400, rel=0.02)
    assert suite.run(*usual).ret == 0


def test_two_sessions_at_once_both_accept_their_cases(suite):
    nights = Nights(suite, ["1n1g", "1n2g"])
    suite.run(*nights.usual("first", of_1n1g=0.8, of_1n2g=0.8), CREATE)
    usual = nights.usual("usual")

    with ExitStack() as stack:
        sessions = [
            stack.enter_context(
                in_background(suite, *usual, UPDATE, "-k", f"throughput and tiny and {topology}")
            )
            for topology in ("1n1g", "1n2g")
        ]
        assert [session.result() for session in sessions] == [0, 0]

    assert suite.run(*usual, "-k", "tiny and throughput").ret == 0
    numbers = accepted(suite)
    assert numbers["1n1g"] == pytest.approx(400, rel=0.02)
    assert numbers["1n2g"] == pytest.approx(760, rel=0.02)


def test_of_two_sessions_that_accept_one_case_only_one_does(suite):
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first", of_1n1g=0.8), CREATE)
    faster = nights.usual("faster")
    fastest = nights.usual("fastest", of_1n1g=1.2)

    with ExitStack() as stack:
        sessions = [
            stack.enter_context(in_background(suite, *night, UPDATE)) for night in (faster, fastest)
        ]
        codes = [session.result() for session in sessions]
        outputs = [session.output for session in sessions]

    number = accepted(suite)["1n1g"]
    entry = yaml.safe_load(nights.text)["entries"]["fp32-b4"]["1n1g"]
    assert sorted(entry["throughput"]["runs"].values())[2] == number
    assert 0 in codes
    # Who comes later is refused, or was held already against what the first has accepted.
    for code, output in zip(codes, outputs, strict=True):
        if code:
            assert "run again to be judged against" in output or "needs --dlperf-reason" in output


@pytest.mark.parametrize(
    "how", ["raise KeyboardInterrupt", "import pytest; pytest.exit('enough', returncode=0)"]
)
def test_a_session_that_is_ended_changes_nothing(suite, how):
    nights = Nights(suite)
    usual = nights.usual("usual")
    (suite.path / "bench_tests" / "conftest.py").write_text(
        f"def pytest_runtest_call(item):\n    if 'speedup' in item.name:\n        {how}\n",
        encoding="utf-8",
    )

    result = suite.run(*usual, CREATE)

    result.stdout.fnmatch_lines(["no baseline was changed: the session was interrupted"])
    assert not nights.file.exists()
    # Nothing that was to be recorded is said to be.
    assert "2 cases: 2 no_baseline" in result.stdout.str()


def test_a_case_whose_test_was_lost_is_not_recorded(suite):
    nights = Nights(suite)
    (suite.path / "bench_tests" / "conftest.py").write_text(
        "import os\n\n"
        "def pytest_runtest_call(item):\n"
        "    if item.name == 'test_speedup[tiny-mlp-fp32-b4-1n2g]':\n"
        "        os._exit(9)\n",
        encoding="utf-8",
    )

    result, results = suite.judge(*nights.usual("usual"), CREATE, "-n", "2", cluster="local")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["the baseline of tiny-mlp-fp32-b4-1n2g stays as it is: a part*"])
    assert list(accepted(suite)) == ["1n1g"]
    [lost] = [case for case in results["cases"] if case["topology"] == "1n2g"]
    assert lost["is_whole"] is False
    assert lost["judgements"]["throughput"]["recorded"] is False
    assert lost["metrics"]["throughput"]["verdict"] == "no_baseline"

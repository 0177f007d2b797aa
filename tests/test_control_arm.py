"""The accepted software runs beside what seems slower, and may take a regression back."""

import pytest
from trainers import SYSTEM, TinySystem, accept

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

LEVELS = {"1n1g": 400.0, "1n2g": 1131.37}
ONE_DEVICE = ["-k", "tiny and 1n1g"]
SLOWER = ["--dlperf-set", f"{SYSTEM}.env.TINY_SLOWER=1.2"]
CONTROL = f"""\
control:
  description: the software of last month
  vars:
    {SYSTEM}:
      env: {{TINY_SLOWER: "1"}}
"""


def with_control(suite):
    """A system with accepted numbers, and the accepted software named."""
    tiny = TinySystem(suite, topologies=["1n1g", "1n2g"])
    accept(suite, LEVELS)
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    cluster.write_text(cluster.read_text(encoding="utf-8") + CONTROL, encoding="utf-8")
    return tiny


def arms(tiny):
    """A for each run of what is tested, B for each of the accepted software."""
    return "".join("B" if line.split()[-1] == "1" else "A" for line in tiny.slower())


def test_a_regression_stands_if_the_accepted_software_is_as_fast_as_ever(suite, workers):
    tiny = with_control(suite)

    result, results = suite.judge(*ONE_DEVICE, *SLOWER, *workers, cluster="local")

    assert result.ret == 1
    assert arms(tiny) == "AAAAA" + "ABBAABBAABBA"
    (case,) = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "regressed"
    assert "confirmed by the control arm" in case["metrics"]["throughput"]["reason"]
    assert [len(case["interleaved"][arm]["runs"]) for arm in ("candidate", "control")] == [6, 6]
    result.stdout.fnmatch_lines(["  accepted software, interleaved: throughput median 400.00, *"])


@pytest.mark.ci
def test_what_the_whole_night_does_is_no_regression(suite):
    tiny = with_control(suite)
    tiny.behave("0.012")

    result, results = suite.judge(*ONE_DEVICE, cluster="local")
    strict = suite.run(*ONE_DEVICE, "--dlperf-strict")

    assert [result.ret, strict.ret] == [0, 1]
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "environment_shift"
    result.stdout.fnmatch_lines(["tiny-mlp-fp32-b4-1n1g*environment_shift*"])
    strict.stdout.fnmatch_lines(["environment_shift -*.* %*: throughput"])


def test_a_strict_session_excuses_no_shift(suite):
    tiny = with_control(suite)
    tiny.behave("0.012")
    (suite.path / "bench_tests" / "conftest.py").write_text(
        "import pytest\n\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.xfail)\n",
        encoding="utf-8",
    )
    assert suite.run(*ONE_DEVICE, "--dlperf-strict").ret == 1


def test_never_leaves_the_regression_as_it_is(suite):
    tiny = with_control(suite)
    tiny.behave("0.012")
    assert suite.run(*ONE_DEVICE, "--dlperf-control", "never").ret == 1
    assert len(tiny.slower()) == 5


def test_a_control_that_changes_nothing_takes_nothing_back(suite):
    tiny = with_control(suite)
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    text = cluster.read_text(encoding="utf-8")
    cluster.write_text(text.replace('{TINY_SLOWER: "1"}', '{TINY_SLOWER: "1.2"}'), "utf-8")

    result = suite.run(*ONE_DEVICE, *SLOWER)

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["regressed -* %*: throughput", "*'control' in * sets nothing for *"]
    )
    assert len(tiny.slower()) == 5


def test_a_control_that_cannot_be_started_takes_nothing_back(suite):
    tiny = with_control(suite)
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    text = cluster.read_text(encoding="utf-8")
    cluster.write_text(
        text.replace('      env: {TINY_SLOWER: "1"}', "      python: /nowhere/python"), "utf-8"
    )
    tiny.behave("0.012")

    result = suite.run(*ONE_DEVICE)

    assert result.ret == 1
    result.stdout.fnmatch_lines(["*the accepted software could not be run beside it: *"])
    result.stdout.fnmatch_lines(["*/nowhere/python*"])


@pytest.mark.ci
def test_a_speedup_asks_the_control_of_its_case(suite):
    tiny = with_control(suite)
    file = suite.path / "baselines" / "local" / f"{SYSTEM}.yaml"
    # Of 2.8: the night seems to scale by a third less.
    text = file.read_text(encoding="utf-8").replace("1131.37", "1131.37, speedup: 4.2")
    file.write_text(text, encoding="utf-8")

    result, results = suite.judge("-k", "tiny and speedup", cluster="local")

    assert result.ret == 0
    [shift] = [one for one in results["cases"] if one["metrics"]["speedup"]["verdict"]]
    assert shift["metrics"]["speedup"]["verdict"] == "environment_shift"
    runs = [line.split()[0] for line in tiny.slower()]
    assert (runs.count("1n1g"), runs.count("1n2g")) == (3, 3 + 8)


def test_the_control_s_mistakes_are_told_before_anything_runs(suite):
    tiny = with_control(suite)
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    text = cluster.read_text(encoding="utf-8")
    cluster.write_text(text.replace("env: {TINY_SLOWER:", "pyton: {TINY_SLOWER:"), "utf-8")
    assert "pyton" in suite.refused()
    assert not tiny.slower()


def test_logs_that_exist_are_judged_without_a_control(suite):
    tiny = with_control(suite)
    tiny.behave("0.012")
    suite.run(*ONE_DEVICE, "--dlperf-run-dir", "night", "--dlperf-control", "never")
    count = len(tiny.slower())
    logs = ["--dlperf-logs", f"{SYSTEM}=night"]
    assert suite.run(*ONE_DEVICE, *logs).ret == 1
    assert len(tiny.slower()) == count

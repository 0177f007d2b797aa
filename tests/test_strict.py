"""What was not measured is never green; with --dlperf-strict it is red case by case."""

import log_makers
import pytest
from nights import Nights
from trainers import TinySystem

pytestmark = pytest.mark.in_process


def test_only_skipped_cases_end_red(suite):
    result = suite.run("-k", "bert and 4n8g")

    result.assert_outcomes(skipped=22)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["skipped: *-4n8g and 10 more: needs checkout *"])
    result.stdout.fnmatch_lines(["nothing was measured: 11 cases: 11 skipped"])
    result.stdout.fnmatch_lines(["11 cases: 11 skipped; failed: nothing was measured"])


def test_strict_fails_each_skipped_case_with_the_reason(suite):
    result, results = suite.judge("-k", "paddle and 4n8g", "--dlperf-strict")

    result.assert_outcomes(failed=10)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["skipped, which --dlperf-strict does not allow: *--dlperf-logs paddle-resnet50=DIR*"]
    )
    verdicts = {case["metrics"]["throughput"]["verdict"] for case in results["cases"]}
    assert verdicts == {"skipped"}


def test_strict_also_fails_what_a_mark_skips(suite):
    TinySystem(suite)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "import pytest\n\n@pytest.mark.skip(reason='not today')\ndef test_own(dlperf_case): pass\n",
        encoding="utf-8",
    )
    result = suite.run("-k", "test_own and tiny", "--dlperf-strict")
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(["*does not allow: not today"])


def test_skipped_beside_measured_is_green_unless_strict(suite):
    TinySystem(suite, alone=False)
    select = ["-k", "tiny and 1n1g or paddle-resnet50-fp32-b128-1n1g", "--dlperf-repeats", "1"]

    recorded = suite.run(*select, "--dlperf-create-baselines")
    recorded.assert_outcomes(passed=1, skipped=1)
    assert recorded.ret == 0

    strict = suite.run(*select, "--dlperf-strict")
    strict.assert_outcomes(passed=1, failed=1)
    assert strict.ret == 1


def test_a_test_that_ends_with_an_error_has_a_verdict(suite):
    TinySystem(suite)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_own(dlperf_case): raise RuntimeError('broken test')\n", encoding="utf-8"
    )
    result, results = suite.judge("-k", "test_own and tiny and 1n1g", cluster="local")
    assert result.ret == 1
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "failed"


def test_a_measured_reference_is_not_a_measured_case(suite):
    """Only the single device has logs, and it was not selected."""
    folder = suite.path / "logs" / "1n1g"
    folder.mkdir(parents=True)
    log = log_makers.tf_models_bert([64 / 112.99] * 121)
    (folder / "bert_b64_fp32_1.log").write_text(log, encoding="utf-8")

    result, _ = suite.judge(
        "--dlperf-logs", "tensorflow-bert_base=logs", "-k", "bert and fp32-b64-4n8g"
    )

    assert result.ret == 1
    result.stdout.fnmatch_lines(["nothing was measured*"])


OWN_TEST = """\
import pytest

def test_own(dlperf_case, dlperf_measure, dlperf_gate):
    measurement = dlperf_measure(dlperf_case)
    {body}
"""


def own_test(suite, body, *arguments):
    usual = Nights(suite).usual("usual", runs=1)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        OWN_TEST.format(body=body), encoding="utf-8"
    )
    return suite.run(*usual, "-k", "test_own and tiny and 1n2g", *arguments)


def test_a_verdict_that_a_test_swallows_is_red(suite, workers):
    swallow = "with pytest.raises(BaseException): dlperf_gate.throughput(measurement)"
    result = own_test(suite, swallow, *workers)
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["a test passed in spite of its verdict: tiny-mlp-fp32-b4-1n2g"])


@pytest.mark.parametrize("arguments", [[], ["--dlperf-strict"]], ids=["usual", "strict"])
def test_a_failure_that_was_expected_is_red_only_when_strict(
    suite, monkeypatch, workers, arguments
):
    expected = "pytest.xfail if not dlperf_gate.throughput(measurement) else None"
    (suite.path / "bench_tests" / "conftest.py").write_text(
        "import pytest\n\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items: item.add_marker(pytest.mark.xfail)\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    result = own_test(suite, expected, *arguments, *workers)

    assert result.ret == (1 if arguments else 0)
    said = "no_baseline" if arguments else "expected"
    result.stdout.fnmatch_lines([f"1 case: 1 {said}*"])
    assert ("::error" in result.stdout.str()) is bool(arguments)


def test_the_gate_judges_no_other_case_than_the_test_s(suite):
    body = (
        "reference = dlperf_measure(dlperf_case.reference)\n"
        "    with pytest.raises(ValueError, match='cannot judge'):\n"
        "        dlperf_gate.throughput(reference)\n"
        "    with pytest.raises(ValueError, match='not over'):\n"
        "        dlperf_gate.speedup(measurement, measurement)"
    )
    result = own_test(suite, body, "--dlperf-create-baselines")
    result.assert_outcomes(passed=1)
    assert not (suite.path / "baselines" / "local").exists()


@pytest.mark.parametrize(
    ("arguments", "body", "missing"),
    [
        (
            ["--dlperf-strict", "-n1"],
            "dlperf_gate.throughput(measurement)",
            ["speedup of tiny-mlp-fp32-b4-1n2g"],
        ),
        (
            [],
            "assert measurement",
            ["throughput of tiny-mlp-fp32-b4-1n1g and 1 more", "speedup of tiny-mlp-fp32-b4-1n2g"],
        ),
    ],
)
def test_a_metric_that_no_test_judges_is_named_and_red_only_when_strict(
    suite, body, missing, arguments
):
    """As where tests of one's own lie beside the suite, and only they are named."""
    *_, logs = Nights(suite).usual("usual", runs=1)
    file = suite.path / "perf" / "test_own.py"
    file.parent.mkdir()
    file.write_text(OWN_TEST.format(body=body), encoding="utf-8")

    result = suite.pytester.runpytest_subprocess(
        "perf", "--dlperf-logs", logs, "--dlperf-create-baselines", *arguments
    )

    result.assert_outcomes(passed=2)
    assert result.ret == (1 if arguments else 0)
    result.stdout.fnmatch_lines(
        [f"no test judges {each}; 'pytest bench_tests/systems' does" for each in missing]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench_tests", "-k", "test_throughput", "-n1"],
        ["bench_tests", "--dlperf-metric", "throughput"],
        ["bench_tests/systems/own.yaml::test_throughput"],
    ],
)
def test_a_metric_that_was_not_selected_is_not_missing(suite, arguments):
    *_, logs = Nights(suite).usual("usual", runs=1)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_own(dlperf_case, dlperf_measure): dlperf_measure(dlperf_case)\n"
    )

    result = suite.pytester.runpytest_subprocess(
        *arguments, "--dlperf-strict", "--dlperf-logs", logs, "--dlperf-create-baselines"
    )

    assert result.ret == 0
    result.stdout.no_fnmatch_line("no test judges*")


def test_a_test_that_fails_after_its_verdict_records_nothing(suite):
    body = "dlperf_gate.throughput(measurement); assert False"
    result = own_test(suite, body, "--dlperf-create-baselines")
    result.assert_outcomes(failed=1)
    assert not (suite.path / "baselines" / "local").exists()


def test_an_expected_failure_excuses_no_other_of_the_case(suite):
    *_, logs = Nights(suite, ["1n1g"]).usual("usual", runs=1)
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "import pytest\n\n"
        "def test_one(dlperf_case, dlperf_measure, dlperf_gate):\n"
        "    dlperf_gate.throughput(dlperf_measure(dlperf_case))\n\n"
        "@pytest.mark.xfail\n"
        "def test_two(dlperf_case, dlperf_measure, dlperf_gate):\n"
        "    dlperf_gate.throughput(dlperf_measure(dlperf_case))\n",
        encoding="utf-8",
    )

    result = suite.run("-k", "test_own and tiny", "--dlperf-logs", logs)

    result.assert_outcomes(failed=1, xfailed=1)
    result.stdout.fnmatch_lines(["1 case: 1 no_baseline"])


def test_a_session_whose_only_test_was_lost_says_so(suite):
    TinySystem(suite, topologies=("1n1g",))
    (suite.path / "bench_tests" / "conftest.py").write_text(
        "import os\n\ndef pytest_runtest_call(item): os._exit(9)\n", encoding="utf-8"
    )

    result = suite.run("-k", "test_throughput and tiny", "-n", "1")

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["nothing was measured: 1 case: 1 lost", "1 case: 1 lost; failed: *"]
    )

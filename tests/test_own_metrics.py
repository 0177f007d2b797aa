"""Metrics of a system's own: from its file to verdicts, baselines and every report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import yaml
from suites import Command, Suite

pytestmark = pytest.mark.in_process

ONE, TWO = "plain-gpt-bf16-b4-1n1g", "plain-gpt-bf16-b4-1n2g"
MEMORY_MB = 14212.5
SYSTEM = """\
framework: plain
model: gpt
unit: samples/s
log:
  name: gpt
  format:
    record: 'iteration (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'
window: {warmup_steps: 2, measured_steps: 8}
metrics:
  loss: {record: 'iteration (?P<step>[0-9]+) .* loss (?P<value>[^ ,]+)', sanity: falls}
  peak_memory:
    record: 'iteration (?P<step>[0-9]+) .* max allocated (?P<value>[^ ]+) MB'
    unit: MB
    better: lower
    statistic: max
    tolerance_percent: 2
cases:
  - {precision: bf16, batch_per_device: 4, topologies: [1n1g, 1n2g]}
"""
GRADIENT_NORM = """\
  gradient_norm: {record: 'grad norm (?P<value>[0-9.]+)', unit: l2, better: lower}
"""


@dataclass(frozen=True)
class Night:
    """What trainings print: five runs of one device, and of two."""

    seconds: float = 0.01
    memory_mb: float = MEMORY_MB
    loss: Callable[[int], str] = lambda step: f"{5 / step:.4f}"
    line: Callable[[str], str] = str

    def write(self, folder):
        for devices in (1, 2):
            logs = folder / f"1n{devices}g"
            logs.mkdir(parents=True)
            for run in range(1, 6):
                lines = [
                    f"iteration {step} took {self.seconds * (1 + run / 1000):.6f} s, "
                    f"loss {self.loss(step)}, max allocated {self.memory_mb:.1f} MB, "
                    f"grad norm {30 / step:.3f}\n"
                    for step in range(1, 11)
                ]
                (logs / f"gpt_b4_bf16_{run}.log").write_text("".join(map(self.line, lines)))


@dataclass(frozen=True)
class Nights:
    """A suite of one system, whose logs a test writes."""

    suite: Suite
    command: Command

    def declare(self, text):
        return self.suite.system_file(text, "plain-gpt.yaml")

    def judge(self, night, *arguments):
        """Judge what a night prints; the metrics by case."""
        folder = self.suite.path / f"night{len([*self.suite.path.glob('night*')])}"
        night.write(folder)
        result, results = self.suite.judge(
            "--dlperf-logs", f"plain-gpt={folder}", *arguments, cluster="local"
        )
        return result, {case["id"]: case["metrics"] for case in results["cases"]}

    def verdicts(self, night, *arguments):
        """Judge what a night prints; the verdicts by case and metric."""
        _, metrics = self.judge(night, *arguments)
        return {
            case: {name: one["verdict"] for name, one in of_case.items() if one["verdict"]}
            for case, of_case in metrics.items()
        }


@pytest.fixture
def nights(suite, command):
    """The system, and the numbers of its first night accepted."""
    for file in (suite.path / "bench_tests" / "systems").iterdir():
        file.unlink()
    nights = Nights(suite, command)
    nights.declare(SYSTEM)
    result, _ = nights.judge(Night(), "--dlperf-create-baselines")
    result.assert_outcomes(passed=7)
    return nights


def is_green(verdicts):
    return set(verdicts.values()) <= {"pass", "improved"}


# ------------------------------------------------------------------------------- verdicts


def test_more_memory_is_red_while_the_throughput_passes(nights):
    result, metrics = nights.judge(Night(memory_mb=1.06 * MEMORY_MB))

    result.assert_outcomes(failed=2, passed=5)
    for case in (ONE, TWO):
        memory = metrics[case].pop("peak_memory")
        assert (memory["verdict"], memory["accepted"]) == ("regressed", MEMORY_MB)
        assert memory["difference_percent"] == pytest.approx(6, rel=1e-3)
        assert is_green({n: one["verdict"] for n, one in metrics[case].items() if one["verdict"]})


def test_less_memory_is_an_improvement(nights):
    result, metrics = nights.judge(Night(memory_mb=0.9 * MEMORY_MB))
    assert result.ret == 0
    assert metrics[ONE]["peak_memory"]["verdict"] == "improved"
    assert metrics[ONE]["peak_memory"]["median"] == pytest.approx(0.9 * MEMORY_MB, rel=1e-4)
    assert metrics[ONE]["loss"]["median"] is not None
    assert metrics[TWO]["speedup"]["median"] == pytest.approx(2)
    assert metrics[ONE]["throughput"]["verdict"] == "pass"
    result.stdout.fnmatch_lines(["to do: accept the gain, *"])


def test_a_fast_training_that_does_not_learn_is_red_throughout(nights):
    """As with a frozen learning rate."""
    result, metrics = nights.judge(Night(loss=lambda _: "5.0000"))

    result.assert_outcomes(failed=7)
    assert {one["verdict"] for of_case in metrics.values() for one in of_case.values()} <= {
        "invalid",
        None,
    }
    result.stdout.fnmatch_lines(["invalid (new): throughput; *", "*loss*5*"])


def test_a_metric_that_vanished_is_red_alone(nights):
    result, metrics = nights.judge(Night(line=lambda line: line.replace("max allocated", "used")))

    result.assert_outcomes(failed=2, passed=5)
    memory = metrics[ONE]["peak_memory"]
    assert (memory["verdict"], memory["median"]) == ("invalid", None)
    assert "max allocated" in memory["reason"]
    assert metrics[ONE]["throughput"]["verdict"] == "pass"


def test_a_check_that_cannot_be_made_is_red_throughout(nights):
    verdicts = nights.verdicts(Night(line=lambda line: line.replace("loss", "perplexity")))
    assert {verdict for of_case in verdicts.values() for verdict in of_case.values()} == {"invalid"}


def test_what_is_only_recorded_may_be_no_number(nights):
    nights.declare(
        SYSTEM.replace(
            "cases:\n", "  scale: {record: 'norm (?P<value>.*)', judged: false}\ncases:\n"
        )
    )
    page = nights.suite.path / "page.html"

    result, metrics = nights.judge(
        Night(line=lambda line: re.sub("norm .*", "norm nan", line)), f"--dlperf-html={page}"
    )

    result.assert_outcomes(passed=7)
    assert metrics[ONE]["scale"]["median"] is None
    assert ONE in page.read_text(encoding="utf-8")


def test_a_number_too_small_for_a_ratio_is_told(nights):
    _, metrics = nights.judge(Night(line=lambda line: line.replace(f"{MEMORY_MB:.1f}", "5e-324")))

    memory = metrics[ONE]["peak_memory"]
    assert (memory["verdict"], memory["median"]) == ("invalid", None)
    assert "4.94066e-324" in memory["reason"]


def test_a_utilisation_that_cannot_be_is_no_number(nights):
    """The peak is that of a whole node in PFLOP/s: every number of it would be of another unit."""
    nights.declare(SYSTEM.replace("metrics:\n", "flops_per_sample: 1.0e+12\nmetrics:\n  mfu: {}\n"))
    (file,) = nights.suite.path.glob("**/local/cluster.yaml")
    text = file.read_text(encoding="utf-8")
    told = {}
    for peak in (7.9, 7900):
        file.write_text(f"{text}peak_tflops: {{bf16: {peak}}}\n", encoding="utf-8")
        _, metrics = nights.judge(Night(), "--dlperf-metric", "mfu")
        told[peak] = metrics[ONE]["mfu"]

    assert (told[7.9]["verdict"], told[7.9]["median"]) == ("invalid", None)
    assert "peak_tflops" in told[7.9]["reason"]
    assert told[7900]["median"] == pytest.approx(5.05, rel=0.01)


# -------------------------------------------------------------------------------- reports


def reports_of(nights, night):
    """What each report says of a night; the terminal's is all that pytest prints."""
    path = nights.suite.path
    files = {
        "JUnit": path / "junit.xml",
        "Markdown": path / "night.md",
        "page": path / "night.html",
        "results file": path / "night.json",
        "pytest-benchmark": path / "benchmark.json",
    }
    result, _ = nights.judge(
        night,
        f"--junitxml={files['JUnit']}",
        f"--dlperf-markdown={files['Markdown']}",
        f"--dlperf-html={files['page']}",
        f"--benchmark-json={files['pytest-benchmark']}",
    )
    (path / "results.json").rename(files["results file"])
    commands = {
        "history": ["history", "show", "--metric", "gradient_norm"],
        "baselines": ["baselines", "show", "--cluster", "local"],
        "compare": ["compare", path / "first.json", files["results file"]],
    }
    return {
        "terminal": result.stdout.str(),
        **{name: file.read_text(encoding="utf-8") for name, file in files.items()},
        **{name: nights.command(*arguments).stdout.str() for name, arguments in commands.items()},
    }


@pytest.mark.ci
@pytest.mark.usefixtures("with_benchmark")
def test_a_third_metric_is_one_entry_and_stands_in_every_report(nights):
    """No report has a list of metrics: what a system declares shows up everywhere."""
    nights.declare(SYSTEM.replace("cases:\n", f"{GRADIENT_NORM}cases:\n"))
    first, _ = nights.judge(Night(), "--dlperf-create-baselines")
    first.assert_outcomes(passed=9)
    (nights.suite.path / "results.json").rename(nights.suite.path / "first.json")
    doubled = Night(line=lambda line: line.replace("norm ", "norm 2"))

    reports = reports_of(nights, doubled)

    for name, text in reports.items():
        assert "gradient_norm" in text, name
    assert re.search(
        r"^regressed \+\S+ % \(new\): gradient_norm$", reports["terminal"], re.MULTILINE
    )
    assert 'name="dlperf.gradient_norm.median"' in reports["JUnit"]
    assert 'name="dlperf.gradient_norm.verdict" value="regressed"' in reports["JUnit"]
    benchmarks = json.loads(reports["pytest-benchmark"])["benchmarks"]
    assert {"regressed"} == {
        benchmark["extra_info"]["metrics"]["gradient_norm"]["verdict"] for benchmark in benchmarks
    }


# ------------------------------------------------------------- one metric, and its baseline


def test_metrics_are_selected_by_their_names(nights):
    """The last alone would leave a loss of the first unseen."""
    result, metrics = nights.judge(
        Night(seconds=0.02), "--dlperf-metric", "throughput, speedup", "--dlperf-metric", "loss"
    )

    result.assert_outcomes(passed=3, failed=2, deselected=2)
    assert metrics[ONE]["throughput"]["verdict"] == "regressed"
    assert metrics[ONE]["peak_memory"]["median"] == MEMORY_MB
    assert metrics[ONE]["peak_memory"]["verdict"] is None


def test_a_metric_without_a_test_is_told(nights):
    own = nights.suite.path / "bench_tests" / "test_own.py"
    own.write_text("def test_own(dlperf_case): pass\n", encoding="utf-8")
    result = nights.suite.pytester.runpytest(own, "--dlperf-metric", "peak_memory")

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["--dlperf-metric: no test here is about peak_memory*"])


def test_a_throughput_in_another_unit_can_begin_anew(nights):
    """As `check` tells; a speedup that stayed is recorded anew with what it is taken of."""
    nights.declare(SYSTEM.replace("samples/s", "sequences/s"))
    check = nights.command("check")
    check.stdout.fnmatch_lines(["*never compared; delete it here and in the entries, to be*"])
    file = nights.suite.path / "baselines" / "local" / "plain-gpt.yaml"
    baselines = yaml.safe_load(file.read_text(encoding="utf-8"))
    for topologies in baselines["entries"].values():
        for entry in topologies.values():
            del entry["throughput"]
    file.write_text(yaml.safe_dump(baselines), encoding="utf-8")

    alone, _ = nights.judge(Night(), "--dlperf-create-baselines", "--dlperf-metric", "speedup")
    assert alone.ret == 1
    alone.stdout.fnmatch_lines(["*--dlperf-metric throughput,speedup takes both*"])
    both, _ = nights.judge(Night(), "--dlperf-create-baselines")
    both.assert_outcomes(passed=7)
    again, metrics = nights.judge(Night())
    again.assert_outcomes(passed=7)
    assert metrics[TWO]["speedup"]["verdict"] == "pass"


# --------------------------------------------------------------------------- tests of one's own


def test_a_test_of_one_s_own_may_judge_any_metric(nights):
    (nights.suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_own(dlperf_scaled_case, dlperf_metric, dlperf_measure, dlperf_gate):\n"
        "    measurement = dlperf_measure(dlperf_scaled_case)\n"
        "    judged = dlperf_gate.metric(measurement, dlperf_metric)\n"
        "    assert judged == dlperf_gate.metric(measurement, dlperf_metric.name)\n"
        "def test_ratio(dlperf_scaled_case, dlperf_measure, dlperf_gate):\n"
        "    measurement = dlperf_measure(dlperf_scaled_case)\n"
        "    reference = dlperf_measure(dlperf_scaled_case.reference)\n"
        "    dlperf_gate.metric(measurement, 'speedup', reference)\n",
        encoding="utf-8",
    )

    result, _ = nights.judge(Night(), "-k", "test_own or test_ratio", "-v")

    result.assert_outcomes(passed=3, deselected=7)
    result.stdout.fnmatch_lines([f"*::test_own?{TWO}-peak_memory? *"])


def test_a_metric_that_cannot_be_judged_is_told(nights):
    calls = {
        "metric(measurement, 'peak_memry')": "no metric 'peak_memry'*'peak_memory'",
        "metric(measurement, 'speedup')": "needs a reference",
        "metric(measurement, 'loss', measurement)": "judged by itself",
    }
    (nights.suite.path / "bench_tests" / "test_own.py").write_text(
        "".join(
            f"def test_own_{number}(dlperf_scaled_case, dlperf_measure, dlperf_gate):\n"
            "    measurement = dlperf_measure(dlperf_scaled_case)\n"
            f"    dlperf_gate.{call}\n"
            for number, call in enumerate(calls)
        ),
        encoding="utf-8",
    )

    result, _ = nights.judge(Night(), "-k", "test_own")

    result.assert_outcomes(failed=3, deselected=7)
    result.stdout.fnmatch_lines([f"*{told}*" for told in calls.values()])


def test_a_metric_is_one_of_a_case(nights):
    (nights.suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_own(dlperf_metric): pass\n", encoding="utf-8"
    )

    result = nights.suite.run("--collect-only")

    result.stdout.fnmatch_lines(["*dlperf_metric*dlperf_case*"])
    assert result.ret != 0


def test_a_case_without_a_reference_has_no_speedup(nights):
    nights.declare(SYSTEM.replace("[1n1g, 1n2g]", "[1n1g, 1n2g], reference: none"))
    (nights.suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_own(dlperf_case, dlperf_measure):\n    dlperf_measure(dlperf_case.reference)\n",
        encoding="utf-8",
    )

    result, metrics = nights.judge(Night())

    result.assert_outcomes(passed=6, failed=2)
    assert metrics[TWO].get("speedup") is None
    result.stdout.fnmatch_lines(["*the case has no reference topology to measure*"])

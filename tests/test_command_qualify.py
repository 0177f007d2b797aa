"""``pytest-dlperf qualify``: what the gate sees of recorded runs, and what it refuses."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest
from clusters.processes import processes_with, wait_until
from suites import Command, Suite

from pytest_dlperf.command.main import main
from pytest_dlperf.command.qualify import Row, legend_lines, table_lines
from pytest_dlperf.command.shell import Style
from pytest_dlperf.gate.qualification import Qualification
from pytest_dlperf.model.metric import RuleName

SCRIPT = Path(sysconfig.get_path("scripts")) / "pytest-dlperf"
SYSTEM = """\
framework: tiny
model: mlp
unit: samples/s
log: {name: tiny, format: dllogger}
window: {warmup_steps: 2, measured_steps: 5}
metrics:
  peak_memory: {record: 'peak memory: (?P<value>[0-9.]+) MB', unit: MB, better: lower}
cases:
  - {precision: fp32, batch_per_device: 4, topologies: [1n1g, 1n2g, 1n4g, 1n8g, 2n8g]}
"""
BASELINES = """\
system: tiny-mlp
metrics:
  throughput: {unit: samples/s, better: higher}
  peak_memory: {unit: MB, better: lower}
estimator: steady
entries:
  fp32-b4:
"""


class TinyCluster:
    """The local cluster of a system whose recorded runs a test writes."""

    def __init__(self, suite: Suite, command: Command) -> None:
        self._command = command
        self.file = suite.path / "baselines" / "local" / "tiny-mlp.yaml"
        self.file.parent.mkdir()
        suite.system_file(SYSTEM, "tiny.yaml")
        self.file.write_text(BASELINES, encoding="utf-8")

    def record(
        self,
        topology: str,
        sessions: Sequence[Sequence[float]],
        tolerance_percent: float | None = None,
        **others: Sequence[Sequence[float]],
    ) -> None:
        """Add a case with the runs of its accepted session, and of those since, by metric."""
        lines = [f"    {topology}:"]
        for metric, nights in {"throughput": sessions, **others}.items():
            accepted, *later = nights
            lines += [f"      {metric}:", f"        accepted: {median(accepted)}"]
            if tolerance_percent is not None:
                lines.append(f"        tolerance_percent: {tolerance_percent}")
            runs = ", ".join(f"{number}: {run}" for number, run in enumerate(accepted, 1))
            lines.append(f"        runs: {{{runs}}}")
            if later:
                lines.append("        sessions:")
            for day, session in enumerate(later, 1):
                at = f"2026-11-{day:02}T02:00:00+00:00"
                lines.append(f'          - {{at: "{at}", runs: {list(session)}}}')
        with self.file.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def qualify(self, *arguments: str) -> pytest.RunResult:
        """Run the command, with few trials unless the arguments say how many."""
        few = [] if "--trials" in arguments else ["--trials", "100"]
        return self._command("qualify", *few, *arguments)


@pytest.fixture
def tiny(suite: Suite, command: Command, monkeypatch: pytest.MonkeyPatch) -> TinyCluster:
    monkeypatch.delenv("COLUMNS", raising=False)
    return TinyCluster(suite, command)


def sessions_of(count: int, noise_percent: float, *, each: int = 5) -> list[list[float]]:
    """Runs about 100 samples/s, the same each time."""
    choose = random.Random(f"{count} {noise_percent}")  # noqa: S311 - noise, no secret
    return [[round(choose.gauss(100, noise_percent), 3) for _ in range(each)] for _ in range(count)]


def rows_of(result: pytest.RunResult, metric: str = "throughput") -> dict[str, list[str]]:
    """The cells of a metric of each case, by topology; the case's own are metric and rule."""
    lines = result.outlines
    return {
        line.split()[0].rpartition("-")[2]: [*line.split()[2:], *lines[number + 1].split()]
        for number, line in enumerate(lines)
        if line.startswith("tiny-mlp-") and line.split()[1] == metric
    }


def test_a_quiet_case_qualifies_and_a_tolerance_below_the_noise_is_refused(
    tiny: TinyCluster,
) -> None:
    tiny.record("1n1g", sessions_of(6, 0.5))
    tiny.record("1n2g", sessions_of(1, 3.0, each=12), tolerance_percent=1)

    result = tiny.qualify()

    assert result.ret == 1
    rows = rows_of(result)
    rule, runs, sessions, noise, alarms, half, once, twice, sees, tolerance, least = rows["1n1g"]
    assert (rule, runs, sessions, tolerance) == ("sequential", "30", "6", "5")
    assert 0.3 < float(noise) < 0.7
    assert float(alarms) == 0
    assert float(half) > 90  # 2.5 %
    assert (once, twice) == ("100.0", "100.0")
    assert 2 <= float(sees) <= 3
    assert float(least) < 2
    assert rows["1n2g"][0] == "tolerance"
    assert float(rows["1n2g"][4]) > 5  # alarms without a loss
    assert float(rows["1n2g"][-1]) > 2
    result.stdout.fnmatch_lines(
        [
            "    refused: the tolerance of 1 % is below what the noise allows*",
            "cluster local: 2 metrics of 2 cases qualified, 1 refused",
            "* left out without baseline*",
        ]
    )


def test_alone_and_with_the_same_seed_a_case_comes_out_the_same(tiny: TinyCluster) -> None:
    for topology in ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g"):
        tiny.record(topology, sessions_of(1, 2.0, each=10))

    among_others = rows_of(tiny.qualify())
    alone = tiny.qualify("*-1n4g")
    otherwise = tiny.qualify("*-1n4g", "--seed", "7")

    assert list(among_others) == ["1n1g", "1n2g", "1n4g", "1n8g", "2n8g"]
    assert rows_of(alone) == {"1n4g": among_others["1n4g"]}
    assert rows_of(otherwise) != rows_of(alone)
    # Of equal runs, each case gets trials of its own.
    assert among_others["1n1g"] != among_others["1n4g"]


def test_every_metric_of_a_case_is_qualified_in_its_own_direction(tiny: TinyCluster) -> None:
    memory = [[12000.0 + run for run in night] for night in sessions_of(6, 120.0)]
    same = [[12000.0] * 5, [12010.0] * 5]
    tiny.record("1n1g", sessions_of(6, 0.5), peak_memory=memory)
    tiny.record("1n2g", sessions_of(6, 0.5), peak_memory=same)

    result = tiny.qualify("*-1n1g", "*-1n2g")

    assert result.ret == 0
    assert list(rows_of(result)) == ["1n1g", "1n2g"]
    rows = rows_of(result, "peak_memory")
    rule, *_, alarms, half, once, twice, sees, _, least = rows["1n1g"]
    assert rule == "sequential"
    assert float(alarms) <= 0.5
    assert float(half) < float(once) <= float(twice)
    assert float(twice) > 99
    assert 2 <= float(sees) <= 4
    assert float(least) < 3
    assert rows["1n2g"][0] == "tolerance"
    assert rows["1n2g"][3:5] == ["0.00", "0.0"]
    result.stdout.fnmatch_lines(["cluster local: 4 metrics of 2 cases qualified, none refused"])

    alone = tiny.qualify("*-1n1g", "*-1n2g", "--metric", "peak_memory")
    assert rows_of(alone, "peak_memory") == rows
    assert not rows_of(alone)


def test_a_metric_whose_direction_has_changed_is_left_out(tiny: TinyCluster) -> None:
    tiny.record("1n1g", sessions_of(6, 0.5), peak_memory=sessions_of(6, 0.5))
    text = tiny.file.read_text(encoding="utf-8").replace("better: lower", "better: higher")
    tiny.file.write_text(text, encoding="utf-8")

    result = tiny.qualify("*-1n1g")

    assert not rows_of(result, "peak_memory")
    result.stdout.fnmatch_lines(["1 metric left out of another unit or direction than accepted*"])


def test_the_rule_can_be_forced(tiny: TinyCluster) -> None:
    tiny.record("1n1g", sessions_of(6, 0.5))

    result = tiny.qualify("--gate", "tolerance", "*-1n1g")

    assert result.ret == 0
    assert rows_of(result)["1n1g"][0] == "tolerance"


def test_a_rule_that_can_decide_nothing_is_refused(tiny: TinyCluster) -> None:
    tiny.record("1n1g", sessions_of(1, 0.5))

    result = tiny.qualify("--gate", "sequential", "*-1n1g")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["    refused: *5 runs*sequential rule needs 20*"])


def test_cases_without_enough_runs_cannot_be_qualified(tiny: TinyCluster) -> None:
    tiny.record("1n1g", sessions_of(1, 0.5, each=4))

    result = tiny.qualify("tiny-*")

    assert result.ret == 1
    assert result.outlines == [
        "cluster local: nothing can be qualified",
        "1 metric left out with fewer than 5 recorded runs; --dlperf-extend-baselines",
        "adds those of sessions that pass",
        "9 metrics left out without baseline; --dlperf-create-baselines records what is",
        "measured",
    ]


@pytest.mark.usefixtures("suite")
def test_a_local_cluster_without_files_says_what_to_do(
    command: Command,
) -> None:
    result = command("qualify")

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["cluster local: nothing can be qualified", "*--dlperf-create-baselines*"]
    )


@pytest.mark.ci
def test_the_published_cluster_qualifies_in_80_columns(suite: Suite) -> None:
    # Quiet cases, some of them with the longest ids.
    cases = ["tensorflow-*", "pytorch-resnet50-fp32-b128-dali+workers8-1n1g"]

    result = suite.pytester.run(
        SCRIPT, "qualify", "--cluster", "dlperf-v100", "--trials", "100", *cases
    )

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["cluster dlperf-v100: * metrics of * cases qualified, none refused"]
    )
    assert max(map(len, result.outlines)) <= 80
    assert not any(line != line.rstrip() for line in result.outlines)


def test_the_cluster_is_that_of_sessions(
    tiny: TinyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPERF_CLUSTER", "dlperf-v100")
    result = tiny.qualify("paddle-resnet50-fp32-b128-1n1g")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["cluster dlperf-v100: 1 metric of 1 case qualified, none refused"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny-mpl*"], "no case of cluster local has the id 'tiny-mpl*'; * stands for"),
        (["*-1n1g", "nothing"], "no case of cluster local has the id 'nothing'; * stands for"),
        (["--cluster", "nowhere"], "there is no cluster 'nowhere'"),
        (
            ["--metric", "peak_memry"],
            "own runs; known: throughput, peak_memory; did you mean 'peak_memory'?",
        ),
        (["--metric", "speedup"], "--metric speedup: no such metric is judged by its own runs"),
    ],
)
def test_what_names_nothing_is_misuse(
    tiny: TinyCluster, arguments: list[str], message: str
) -> None:
    result = tiny.qualify(*arguments)

    assert result.ret == 2
    assert not result.outlines
    assert result.stderr.str().startswith("pytest-dlperf qualify: ")
    assert message in result.stderr.str()


def test_files_with_mistakes_are_told_and_not_qualified(tiny: TinyCluster) -> None:
    tiny.file.write_text("system: [", encoding="utf-8")

    result = tiny.qualify()

    assert result.ret == 2
    assert "Traceback" not in result.stderr.str()
    result.stderr.fnmatch_lines(["*mistakes in baselines:", "*baselines/local/tiny-mlp.yaml:*"])


@pytest.mark.usefixtures("pytester")
def test_a_folder_without_suite_is_misuse(command: Command) -> None:
    result = command("qualify")

    assert result.ret == 2
    result.stderr.fnmatch_lines(["pytest-dlperf qualify: there are no cases: *--systems"])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="one processor gets no processes")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
def test_nothing_is_left_of_a_command_that_is_ended(suite: Suite, how: signal.Signals) -> None:
    arguments = ["qualify", "--cluster", "dlperf-v100", "--trials", "1000000"]
    marker = f"{how.name} in {suite.path}"
    errors = suite.path / "errors.txt"
    with (
        errors.open("wb") as opened,
        subprocess.Popen(
            [SCRIPT, *arguments],
            cwd=suite.path,
            stderr=opened,
            env={**os.environ, "MARKER": marker},
        ) as command,
    ):
        try:
            wait_until(
                lambda: len(processes_with(marker)) > min(len(os.sched_getaffinity(0)), 4),
                what="the processes that qualify",
            )
            command.send_signal(how)
            command.wait(30)
            wait_until(lambda: not processes_with(marker), what="the end of all")
        finally:
            command.kill()
    assert command.returncode == -how
    assert not errors.read_text(encoding="utf-8")


def test_each_rule_of_the_gate_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["qualify", "--help"])
    assert f"--gate {{{','.join(rule.value for rule in RuleName)}}}" in capsys.readouterr().out


# ------------------------------------------------------------------------------ the table


def row(case_id: str = "tiny-mlp-fp32-b4-1n1g", *, fault: str | None = None) -> Row:
    return Row(
        case_id=case_id,
        metric="throughput",
        tolerance_percent=5.0,
        qualification=Qualification(
            runs=30,
            sessions=6,
            rule=RuleName.SEQUENTIAL,
            noise_percent=1.0,
            false_alarms=0.002,
            power=(0.5, 0.99, 1.0),
            min_detectable_percent=None if fault else 2.6,
            smallest_tolerance_percent=2.01,
            fault=fault,
        ),
    )


class Plain(Style):
    """A stream of a given width without colours."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, text: str, *markup: str) -> str:
        del markup
        return text


def test_a_wide_terminal_has_one_line_for_each_case() -> None:
    line = (
        "tiny-mlp-fp32-b4-1n1g  throughput  sequential    30         6   1.00     0.2    50.0  99.0"
        "  100.0   2.6          5    2.1"
    )
    rows = [row("tiny-mlp-fp32-b4-1n1g")]

    assert list(table_lines(rows, Plain(len(line))))[1:] == [line]
    assert len(list(table_lines(rows, Plain(len(line) - 1)))) == 4


def test_a_narrow_terminal_has_two_lines_for_each_case_and_whole_option_names() -> None:
    fault = (
        "the baseline has 6 runs, the sequential rule needs 20: then --dlperf-extend-baselines "
        "adds those of sessions that pass"
    )
    lines = list(table_lines([row(), row("tiny-mlp-fp32-b4-1n2g", fault=fault)], Plain(80)))

    assert lines == [
        "case                   metric      rule",
        "  runs  sessions  noise  alarms  at 1/2  at 1   at 2  sees  tolerance  least",
        "tiny-mlp-fp32-b4-1n1g  throughput  sequential",
        "    30         6   1.00     0.2    50.0  99.0  100.0   2.6          5    2.1",
        "tiny-mlp-fp32-b4-1n2g  throughput  sequential",
        "    30         6   1.00     0.2    50.0  99.0  100.0     -          5    2.1",
        "    refused: the baseline has 6 runs, the sequential rule needs 20: then",
        "    --dlperf-extend-baselines adds those of sessions that pass",
    ]


def test_the_legend_explains_each_heading() -> None:
    legend = "\n".join(legend_lines([], trials=500, seed=0))
    for heading in ("noise", "alarms", "at 1/2", "sees", "least", "500 trials"):
        assert heading in legend


@pytest.mark.parametrize("has_nights", [True, False])
def test_the_legend_says_where_nights_were_not_simulated(has_nights: bool) -> None:
    qualification = Qualification(
        runs=12,
        sessions=4,
        rule=RuleName.TOLERANCE,
        noise_percent=0.5,
        false_alarms=0.0,
        power=(0.5, 1.0, 1.0),
        min_detectable_percent=4.0,
        smallest_tolerance_percent=2.0,
        fault=None,
        has_nights=has_nights,
    )
    row = Row(
        case_id="tiny-mlp-fp32-b4-1n1g",
        metric="throughput",
        tolerance_percent=5.0,
        qualification=qualification,
    )
    told = " ".join(legend_lines([row], trials=100, seed=0))
    assert ("not tried in 1 row: too few sessions" in told) is not has_nights

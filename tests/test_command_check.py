"""``pytest-dlperf check``: mistakes in a project's files, without a run."""

import io
import os
import pty
import re
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path

import pytest

from pytest_dlperf.command.main import COMMANDS, main
from pytest_dlperf.command.shell import Style

SCRIPT = Path(sysconfig.get_path("scripts")) / "pytest-dlperf"
PADDLE = "baselines/dlperf-v100/paddle-resnet50.yaml"
SMALL_SYSTEM = """\
framework: tiny
model: mlp
unit: samples/s
log: {name: tiny, format: dllogger}
window: {warmup_steps: 2, measured_steps: 5}
cases:
  - {precision: fp32, batch_per_device: 4, topologies: [1n1g]}
"""
SMALL_BASELINES = """\
system: tiny-mlp
metrics: {throughput: {unit: samples/s, better: higher}}
estimator: steady
entries:
  fp32-b4:
    1n1g:
      throughput: {accepted: 101.0, runs: {1: 100.0, 2: 101.0, 3: 102.0}}
"""


@pytest.fixture
def check(suite, command):
    """The command, in the folder of the suite."""
    del suite
    return partial(command, "check")


def line_of(suite, file, text):
    """The number of the first line that holds the text."""
    lines = (suite.path / file).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def edit(suite, file, old, new):
    """Replace the first such text in a file; its line."""
    line = line_of(suite, file, old)
    path = suite.path / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    return line


def test_the_published_baselines_have_no_faults(suite, check):
    before = {path for path in suite.path.rglob("*") if path.is_file()}

    result = check()

    assert result.ret == 0
    assert result.outlines[-1].startswith("6 system files (")
    assert result.outlines[-1].endswith("1 cluster (dlperf-v100): no faults")
    # Nothing is run and nothing written; pytester keeps what the command printed.
    new = {path.name for path in suite.path.rglob("*") if path.is_file() and path not in before}
    assert new <= {"stdout", "stderr"} | {name for name in new if name.endswith(".pyc")}


def test_a_number_that_does_not_follow_from_its_runs_is_found(suite, check):
    edit(suite, PADDLE, "accepted: 352.72", "accepted: 362.72")
    entry = line_of(suite, PADDLE, "1n1g:") + 2

    result = check()

    assert result.ret == 1
    (fault,) = [line for line in result.outlines if line.startswith(PADDLE)]
    assert fault.split(":")[1] == str(entry)
    assert "362.72" in fault
    assert "352.715" in fault
    assert result.outlines[-1].endswith(": 1 fault")


def test_broken_yaml_is_a_finding_and_the_other_files_are_looked_at(suite, check):
    system = "bench_tests/systems/paddle-arcface_r50.yaml"
    in_system = edit(suite, system, "unit:", "unti:")
    baselines = "baselines/dlperf-v100/tensorflow-bert_base.yaml"
    in_baselines = edit(suite, baselines, "      throughput:", "      throughput: [")
    in_cluster = edit(suite, "baselines/dlperf-v100/cluster.yaml", "estimator: ", "estimator: x")
    suite.path.joinpath("baselines/other").mkdir()
    suite.path.joinpath("baselines/other/cluster.yaml").write_bytes(b"description: \xff\n")

    result = check()

    assert result.ret == 1
    assert not result.errlines
    output = result.stdout.str()
    assert f"{system}:{in_system}: " in output
    assert "did you mean 'unit'?" in output
    # Where YAML gives up on the bracket, which is not before the next line.
    assert re.search(rf"^{baselines}:{in_baselines + 1}: \$: not YAML: ", output, re.MULTILINE)
    assert f"baselines/dlperf-v100/cluster.yaml:{in_cluster}: " in output
    assert "baselines/other/cluster.yaml:1: $: is not UTF-8" in output
    assert "no system file" not in output  # it is there, and broken


def test_baselines_are_not_blamed_for_a_system_file_that_cannot_be_read(suite, check):
    system = suite.path / "bench_tests/systems/paddle-resnet50.yaml"
    system.write_text("framework: [", encoding="utf-8")
    edit(suite, PADDLE, "accepted: 352.72", "accepted: 362.72")
    entry = line_of(suite, PADDLE, "1n1g:") + 2

    result = check()

    assert result.ret == 1
    broken, number, _ = result.outlines
    assert broken.startswith("bench_tests/systems/paddle-resnet50.yaml:")
    assert ": $: not YAML: " in broken
    # What has to do with no system is looked at all the same.
    assert number.startswith(f"{PADDLE}:{entry}: ")


def test_what_a_cluster_sets_for_nobody_is_found(suite, check):
    file = suite.path / "baselines/dlperf-v100/cluster.yaml"
    with file.open("a", encoding="utf-8") as opened:
        opened.write("vars:\n  paddle-resnet50:\n    chekout: /data\n")
    line = len(file.read_text(encoding="utf-8").splitlines())

    result = check()

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [f"baselines/dlperf-v100/cluster.yaml:{line}: $.vars.*did you mean 'checkout'*"]
    )


def test_a_folder_without_cluster_yaml_is_a_fault(suite, check):
    folder = suite.path / "baselines" / "forgotten"
    folder.mkdir()
    (folder / "tiny-mlp.yaml").write_text(SMALL_BASELINES, encoding="utf-8")

    result = check()

    assert result.ret == 1
    result.stdout.fnmatch_lines(["baselines/forgotten: *no cluster.yaml*"])


def test_a_metric_that_is_declared_no_more_is_found(suite, check):
    (suite.path / "bench_tests/systems/tiny.yaml").write_text(SMALL_SYSTEM, encoding="utf-8")
    file = suite.path / "baselines/local/tiny-mlp.yaml"
    file.parent.mkdir()
    text = SMALL_BASELINES.replace("higher}}", "higher}, loss: {better: lower}}")
    file.write_text(f"{text}      loss: 0.5\n", encoding="utf-8")

    result = check("--cluster", "local")

    assert result.ret == 1
    [fault] = [line for line in result.outlines if "stale" in line]
    assert fault.startswith("baselines/local/tiny-mlp.yaml:2: stale: no metric 'loss' ")
    file.write_text(SMALL_BASELINES, encoding="utf-8")
    assert check("--cluster", "local").ret == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--systems", "empty", "--baselines", "empty"], 2, "there is nothing to check"),
        (["--systems", "empty"], 1, "0 system files (0 cases), 1 cluster"),
        (["--baselines", "empty"], 0, "no cluster: no faults"),
        (["--cluster", "local"], 0, "1 cluster (local): no faults"),
        (["--cluster", "dlperf-v1000"], 2, "there is no cluster 'dlperf-v1000'"),
    ],
)
def test_a_project_need_not_have_both_systems_and_baselines(suite, check, arguments, code, said):
    suite.pytester.mkdir("empty")

    result = check(*arguments)

    assert result.ret == code
    assert said in (result.errlines or result.outlines)[-1]


# ------------------------------------------------------------- the project as sessions see it


def test_settings_come_from_the_ini_file_of_sessions(suite, check, monkeypatch):
    """Their workers and hosts do not matter; another file may be named after two dashes."""
    (suite.path / "baselines").rename(suite.path / "numbers")
    suite.pytester.makeini(
        "[pytest]\ndlperf_baselines = numbers\naddopts = -n auto\nfilterwarnings = error\n"
    )
    monkeypatch.setenv("DLPERF_HOSTS", "@/there/is/no/such/file")
    edit(suite, PADDLE.replace("baselines", "numbers", 1), "accepted: 352.72", "accepted: 1.5")
    (suite.path / "other.ini").write_text(
        "[pytest]\ndlperf_baselines = nowhere\n", encoding="utf-8"
    )

    result = check()
    other = check("--", "-c", "other.ini")

    assert result.ret == 1
    result.stdout.fnmatch_lines(["numbers/dlperf-v100/paddle-resnet50.yaml:*"])
    assert other.ret == 0
    assert other.outlines[-1].endswith("no cluster: no faults")


def test_systems_that_a_conftest_adds_are_known(suite, check):
    (suite.path / "tiny.yaml").write_text(SMALL_SYSTEM, encoding="utf-8")
    suite.path.joinpath("bench_tests/conftest.py").write_text(
        "from pathlib import Path\n"
        "def pytest_dlperf_system_files(config):\n"
        "    return [Path(__file__).parent.parent / 'tiny.yaml']\n",
        encoding="utf-8",
    )
    file = suite.path / "baselines/local/tiny-mlp.yaml"
    file.parent.mkdir()
    file.write_text(SMALL_BASELINES, encoding="utf-8")

    assert check("--cluster", "local").ret == 0

    suite.path.joinpath("bench_tests/conftest.py").unlink()
    without = check("--cluster", "local")
    assert without.ret == 1
    without.stdout.fnmatch_lines(["baselines/local/tiny-mlp.yaml:*"])


def test_a_log_format_of_a_name_that_there_is_is_misuse(suite, check):
    suite.path.joinpath("bench_tests/conftest.py").write_text(
        "from pytest_dlperf.formats.log_format import custom_format\n"
        "def pytest_dlperf_log_formats(config):\n"
        "    return [custom_format('plsc', record='(?P<step>[0-9]+) (?P<seconds>[0-9]+)')]\n",
        encoding="utf-8",
    )

    result = check()

    assert result.ret == 2
    assert result.errlines == ["pytest-dlperf check: the log format 'plsc' is already registered"]


def test_what_pytest_cannot_read_is_misuse(suite, check):
    suite.pytester.makeini("[pytest]\ndlperf_strict = quark\n")

    result = check()

    assert result.ret == 2
    result.stderr.fnmatch_lines(
        ["ERROR: ini key dlperf_strict='quark'*", "pytest-dlperf check: pytest could not be *"]
    )


# --------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["chekc"], "invalid choice: 'chekc' (choose from"),
        (["check", "--systems", "nowhere"], "argument --systems: there is no folder 'nowhere'"),
        (["check", "--baselines", ""], "argument --baselines: it is empty"),
        (["check", "--clust", "local"], "unrecognized arguments: --clust"),
    ],
)
def test_a_malformed_command_line_ends_with_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_and_help_that_fits_a_screen(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert f"Example: pytest-dlperf {name}" in text
    assert len(text.splitlines()) <= 40


def test_help_imports_nothing_but_the_command():
    program = (
        "import sys\n"
        "from pytest_dlperf.command.main import COMMANDS, main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    print('IMPORTED', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.rpartition("IMPORTED")[2].split())
    assert not imported & {"pytest", "_pytest", "yaml", "numpy", "filelock"}
    assert {name for name in imported if name.startswith("pytest_dlperf")} == {
        "pytest_dlperf",
        "pytest_dlperf.command",
        "pytest_dlperf.command.main",
        "pytest_dlperf.model",
        "pytest_dlperf.model.errors",
    }


def test_output_that_nobody_reads_to_its_end_is_no_crash(suite):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [SCRIPT, "check"],
            cwd=suite.path,
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert not done.stderr


def test_a_terminal_gets_colours(suite, check, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033[1;32mno faults\033[0m" in on_a_terminal(suite)
    assert "\033" not in check().stdout.str()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in on_a_terminal(suite)


def on_a_terminal(suite):
    """What ``check`` prints there."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run([SCRIPT, "check"], cwd=suite.path, stdout=theirs, check=True)
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_names_that_the_encoding_lacks_are_written_with_backslashes(suite, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    folder = suite.path / "baselines" / "größer"
    folder.mkdir()
    (folder / "tiny-mlp.yaml").write_text(SMALL_BASELINES, encoding="utf-8")

    result = suite.pytester.run(SCRIPT, "check")

    assert result.ret == 1
    assert not result.errlines
    assert "gr\\xf6\\xdfer" in result.stdout.str()


def test_output_into_a_file_is_80_columns_wide(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert Style(io.StringIO()).width == 80
    monkeypatch.setenv("COLUMNS", "132")
    assert Style(io.StringIO()).width == 132

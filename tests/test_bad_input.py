"""Bad input is told at once, loses nothing and never ends green."""

import errno
import os
import sys
from fnmatch import fnmatchcase

import log_makers
import pytest

from pytest_dlperf.logs.tree import LogSource, index_logs
from pytest_dlperf.model.case import Case
from pytest_dlperf.report import markdown
from pytest_dlperf.results import file as results_file

pytestmark = pytest.mark.in_process

CASE = Case.from_id("tensorflow-bert_base-fp32-b64-1n1g")


def write_log(folder, name="bert_b64_fp32_1.log", throughput=113.0):
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / name
    step_s = CASE.global_batch / throughput
    log.write_text(log_makers.tf_models_bert([step_s] * 121), encoding="utf-8")
    return log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dlperf-logs", "tensorflow-bert=logs"],
         "--dlperf-logs tensorflow-bert: there is no such system; *'tensorflow-bert_base'?"),
        (["--dlperf-logs", "tensorflow-bert_base/dali=logs"],
         "*tensorflow-bert_base has no case with these options; it has: xla"),
        (["--dlperf-logs", "tensorflow-bert_base=nowhere"],
         "--dlperf-logs tensorflow-bert_base: *nowhere: No such file or directory; *"),
        (["--dlperf-logs", "tensorflow-bert_base=empty"], "*no [*].log file below *empty; *"),
        (["--dlperf-logs", "tensorflow-bert_base=logs/slurm-1.out"],
         "*slurm-1.out: Not a directory; name a file by its case, --dlperf-logs CASE=FILE"),
        (["--dlperf-cluster", "v100"], "there is no cluster 'v100' below *dlperf-v100*"),
        (["--dlperf-cluster", "misspelt"],
         "*cluster.yaml names the system 'paddle-resnet', which no*"),
        (["-o", "dlperf_history=notes.txt"],
         "ini key dlperf_history: *notes.txt is not a database*"),
        (["--dlperf-run-dir", "logs"], "--dlperf-run-dir: *logs is not empty*"),
        (["--dlperf-metric", "loss,peak_memry"],
         "--dlperf-metric peak_memry: *loss, peak_memory, *did you mean 'peak_memory'*"),
        (["--dlperf-metric", "throughput_per_device"],
         "--dlperf-metric throughput_per_device: *'metrics'*loss, peak_memory*"),
        (["--dlperf-launcher=kubernets"],
         "--dlperf-launcher: unknown launcher 'kubernets'; *did you mean 'kubernetes'?"),
        (["-o", "dlperf_hosts=a,,b"], "ini key dlperf_hosts: '' is no host*"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_an_option_that_makes_no_sense_is_a_usage_error(suite, arguments, message):
    write_log(suite.path / "logs", "slurm-1.out")
    (suite.path / "empty").mkdir()
    (suite.path / "notes.txt").write_text("no database", encoding="utf-8")
    published = suite.path / "baselines" / "dlperf-v100" / "cluster.yaml"
    text = published.read_text(encoding="utf-8").replace("paddle-resnet50", "paddle-resnet")
    (suite.path / "baselines" / "misspelt").mkdir()
    (suite.path / "baselines" / "misspelt" / "cluster.yaml").write_text(text, encoding="utf-8")

    assert fnmatchcase(suite.refused(*arguments), message)

    assert (suite.path / "notes.txt").read_text(encoding="utf-8") == "no database"


def test_a_mistake_in_a_baseline_fails_every_case_that_needs_it(suite):
    write_log(suite.path / "logs" / "1n1g")
    file = suite.path / "baselines" / "dlperf-v100" / "tensorflow-bert_base.yaml"
    text = file.read_text(encoding="utf-8").replace("112.99", "-112.99")
    file.write_text(text, encoding="utf-8")

    result, results = suite.judge("--dlperf-logs", "tensorflow-bert_base=logs", "-k", CASE.id)

    assert result.ret == 1
    result.stdout.fnmatch_lines(["*$.entries.fp32-b64.1n1g.throughput.accepted: found '-112.99'*"])
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] not in {"pass", "improved", None}


def test_logs_that_belong_to_no_case_end_red(suite):
    write_log(suite.path / "logs" / "1n1g", "bert_b63_fp32_1.log")
    write_log(suite.path / "logs" / "somewhere")

    result, results = suite.judge("--dlperf-logs", "tensorflow-bert_base=logs")

    assert result.ret == 1
    result.assert_outcomes(skipped=209)
    result.stdout.fnmatch_lines(["*nothing was measured*"])
    assert {log["reason"] for log in results["ignored_logs"]} == {
        "tensorflow-bert_base has no case of fp32, b63, 1n1g, no options",
        "the folder above it names no topology such as 1n8g",
    }


@pytest.mark.parametrize(
    "name",
    [
        "bert_b64_fp32_7_9.log",
        "bert_b64_fp32_01.log",
        "bert_b64_fp32_1.log\n.log",
        "bert_b64_fp32_1\n.log",
        "Bert_b64_fp32_1.log",
        "r50_b64_fp32_1.log",
        "b\udcffrt_b64_fp32_1.log",
    ],
)
def test_a_name_that_does_not_match_to_the_letter_is_left_out(tmp_path, name):
    good = write_log(tmp_path / "1n1g")
    bad = write_log(tmp_path / "1n1g", name)

    index = index_logs(LogSource(CASE.system, None, tmp_path), log_name="bert", cases=[CASE])

    assert index.logs == {CASE.id: {1: [str(good)]}}
    [ignored] = index.ignored
    assert ignored.log == str(bad)
    assert ignored.reason == "the name is not of the form bert_(b|gb)<batch>_<precision>_<run>.log"


def test_odd_names_and_loops_of_links_do_no_harm(suite, workers):
    logs = suite.path / "logs" / "night\udcff\n2"
    write_log(logs / "1n1g")
    write_log(logs / "1n1g", "b\udcffrt_b64_fp32_1.log\n.log", throughput=1.0)
    (logs / "again").symlink_to(logs)
    (logs / "1n1g" / "up").symlink_to("..")
    (logs / "broken").symlink_to("nowhere")
    (logs / "self").symlink_to("self")

    result, results = suite.judge(
        "--dlperf-logs", "tensorflow-bert_base=logs", "-k", CASE.id, *workers
    )

    assert result.ret == 0
    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "ok"
    assert "night\\xff\n2" in run["log"]
    [ignored] = results["ignored_logs"]
    assert ignored["log"].endswith("/b\\udcffrt_b64_fp32_1.log\n.log")
    result.stdout.fnmatch_lines(["logs that were left out: 1"])


def test_a_log_that_cannot_be_read_is_invalid(suite):
    (suite.path / "logs" / "1n1g").mkdir(parents=True)
    (suite.path / "logs" / "1n1g" / "bert_b64_fp32_1.log").symlink_to("nowhere")

    result, results = suite.judge("--dlperf-logs", "tensorflow-bert_base=logs", "-k", CASE.id)

    assert result.ret == 1
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "invalid"
    assert "No such file" in results["cases"][0]["measurement"]["runs"][0]["reason"]


@pytest.mark.ci
@pytest.mark.slow
def test_ten_thousand_other_files_are_no_trouble(suite):
    write_log(suite.path / "logs" / "1n1g")
    crowd = suite.path / "logs" / "crowd"
    crowd.mkdir()
    for number in range(10_000):
        (crowd / f"{number}.log").touch()

    result, results = suite.judge("--dlperf-logs", "tensorflow-bert_base=logs", "-k", CASE.id)

    assert result.ret == 0
    assert len(results["ignored_logs"]) == 10_000
    result.stdout.fnmatch_lines(["*… and 9980 more; --dlperf-json FILE has all of them"])
    assert len(result.outlines) < 60


@pytest.mark.slow
def test_a_log_larger_than_memory_is_read_like_any_other(suite):
    """The window is at its very end, behind more of nothing than the session may hold."""
    log = write_log(suite.path / "logs" / "1n1g")
    text = log.read_bytes()
    with log.open("wb") as file:
        file.seek(400_000_000)
        file.write(b"\n" + text)

    result = suite.pytester.run(
        "sh", "-c", 'ulimit -v 400000; exec "$@"', "sh",
        sys.executable, "-m", "pytest", "bench_tests", "--dlperf-cluster", "dlperf-v100",
        "--dlperf-logs", "tensorflow-bert_base=logs", "-k", CASE.id,
    )  # fmt: skip

    assert result.ret == 0


def test_results_that_cannot_be_written_fail_the_session(suite, monkeypatch):
    write_log(suite.path / "logs" / "1n1g")

    def fill(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(results_file, "write_whole", fill)

    result = suite.run(
        "--dlperf-cluster", "dlperf-v100", "--dlperf-logs", "tensorflow-bert_base=logs",
        "-k", CASE.id, "--dlperf-json", "results.json", "--dlperf-markdown", "page.md",
    )  # fmt: skip

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["the results could not be written to *results.json: No space left on device"]
    )
    assert (suite.path / "page.md").read_text(encoding="utf-8").startswith("# dlperf: cluster")


def test_a_report_with_a_fault_of_ours_costs_no_other_report(suite, monkeypatch):
    write_log(suite.path / "logs" / "1n1g")
    monkeypatch.setattr(markdown, "markdown_page", lambda _: dict[str, str]()["no such thing"])

    result, results = suite.judge(
        "--dlperf-logs", "tensorflow-bert_base=logs", "-k", CASE.id,
        "--dlperf-markdown", "page.md", "--dlperf-tables", "tables",
    )  # fmt: skip

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "the Markdown page could not be made: KeyError: 'no such thing' (test_bad_input.py*",
            "tables: *",
        ]
    )
    assert results["cases"][0]["metrics"]["throughput"]["verdict"] == "pass"
    assert (suite.path / "tables" / "tensorflow-bert_base.md").is_file()


def test_a_suite_without_system_files_says_where_it_looked(suite):
    (suite.path / "empty").mkdir()
    result = suite.run("--dlperf-systems", "empty")

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*there is no system file*empty*"])
    result.stdout.no_fnmatch_line("*Traceback*")

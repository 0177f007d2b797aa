"""``pytest-dlperf compare``: two results files in, words and reports out."""

import json
import sysconfig
from pathlib import Path

import pytest
from results_makers import even_case, session

from pytest_dlperf.command.main import main
from pytest_dlperf.results.file import to_json, write_json

pytestmark = pytest.mark.in_process

SCRIPT = Path(sysconfig.get_path("scripts")) / "pytest-dlperf"
ONE = "paddle-resnet50-fp32-b128-1n1g"
OPTIONS = "pytorch-resnet50-fp32-b128-dali+workers8-1n4g"


def at(level, case_id=ONE, **more):
    return even_case(level, case_id, **more)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def compare(folder, first, second, *arguments):
    for name, result in (("a", first), ("b", second)):
        write_json(folder / f"{name}.json", session(result, name=name * 32))
    return main(["compare", "a.json", "b.json", *arguments])


def message(capsys):
    printed, told = capsys.readouterr()
    assert printed == ""
    return told.removeprefix("pytest-dlperf compare: ").rstrip("\n")


def test_worse_is_a_failure_where_it_is_asked_for(folder, capsys):
    assert compare(folder, at(350.0), at(35.0)) == 0
    assert "1 case compared: 1 worse" in capsys.readouterr().out
    assert compare(folder, at(350.0), at(35.0), "--fail-on", "different, worse") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-2:] == ["--fail-on: 1 case worse by throughput", f"  {ONE}"]
    assert compare(folder, at(350.0), at(35.0), "--fail-on=worse", "--tolerance=90.5") == 0
    assert capsys.readouterr().out.endswith("\n--fail-on: nothing fails\n")


def test_a_gate_fails_where_nothing_can_be_judged(folder, capsys):
    few = at(350.0, runs=2), at(150.0, runs=2)
    assert compare(folder, *few) == 0
    capsys.readouterr()
    assert compare(folder, *few, "--fail-on", "better", "--tolerance", "3") == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-2].startswith("--fail-on: 1 case ")
    assert told[-1] == f"  {ONE}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--markdown", "-"],
            "argument --markdown: '-' is no file; name one",
        ),
        (["--fail-on", "worse,slower"], "argument --fail-on: 'slower' is not one of: worse, "),
        (["--fail-on", ""], "argument --fail-on: '' is not one of: worse, "),
        (["--fail-on=worse", "--tolerance=-1"], "argument --tolerance: '-1' is not a percentage"),
        (["--fail-on=worse", "--tolerance=nan"], "argument --tolerance: 'nan' is not a percentage"),
        (["--tolerance=3"], "--tolerance: it is that of --fail-on, "),
    ],
)
def test_what_cannot_be_meant_is_misuse(folder, capsys, arguments, said):
    try:
        code = compare(folder, at(1.0), at(1.0), *arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert said in capsys.readouterr().err


def test_the_reports_are_written_where_the_user_says(folder, capsys):
    options = ("--markdown", "new/c.md")
    assert compare(folder, at(350.0), at(364.0), *options) == 0
    written = (folder / "new" / "c.md").read_text(encoding="utf-8")
    for text in (capsys.readouterr().out, written):
        for words in ("1 case compared: 1 better", "350.00", "364.00", "1.040", "B: b.json", ONE):
            assert words in text


def test_sessions_of_two_frameworks_are_compared(suite):
    from nights import Nights

    nights = Nights(suite)
    file = suite.path / "bench_tests" / "systems" / "own.yaml"
    for framework, factor in (("tiny", 1.0), ("other", 1.2)):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("framework: tiny", f"framework: {framework}"), "utf-8")
        logs = nights.usual(framework, of_1n1g=factor, of_1n2g=factor)[-1]
        logs = logs.replace("tiny-mlp", f"{framework}-mlp")
        suite.judge("-k", f"{framework}-mlp", "--dlperf-logs", logs, cluster="local")
        (suite.path / "results.json").rename(suite.path / f"{framework}.json")

    result = suite.pytester.run(SCRIPT, "compare", "tiny.json", "other.json")

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "Paired by model, precision, work of a step and topology:",
            "  tiny-mlp-fp32-b4-1n1g with other-mlp-fp32-b4-1n1g",
            "  tiny-mlp-fp32-b4-1n2g with other-mlp-fp32-b4-1n2g",
            "2 cases compared: 2 better",
        ]
    )


# ------------------------------------------------------------------------------ misuse


def test_a_file_that_cannot_be_read_is_named_with_the_place(folder, capsys):
    plain = json.loads(to_json(session(at(350.0))))
    (folder / "a.json").write_text(json.dumps(plain), encoding="utf-8")
    plain["cases"][0]["measurement"]["runs"][0]["metrics"]["throughput"] = "fast"
    (folder / "b.json").write_text(json.dumps(plain), encoding="utf-8")
    assert main(["compare", "a.json", "b.json"]) == 2
    told = message(capsys)
    assert told.startswith(
        "b.json: is no results file of schema 3: Expected `float`, got `str` - at"
    )
    assert "$.cases[0].measurement.runs[0].metrics[...]`; name one that" in told
    assert main(["compare", "none.json", "b.json"]) == 2
    assert message(capsys).startswith("none.json: cannot be read: ")


def test_a_report_that_cannot_be_written_is_misuse(folder, capsys):
    (folder / "file").touch()
    assert compare(folder, at(1.0), at(1.0), "--markdown", "file/report") == 2
    assert message(capsys).startswith("--markdown: file/report: ")
    assert compare(folder, at(1.0), at(1.0), "--markdown", "./b.json") == 2
    assert "would overwrite" in message(capsys)
    json.loads((folder / "b.json").read_text(encoding="utf-8"))

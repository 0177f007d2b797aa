"""``pytest-dlperf history export``: every measurement as a row that other programs read."""

import csv
import io
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from histories import CASE, add, case_result, night, session
from results_makers import MEMORY, judged, unmeasured_case, with_judgement

from pytest_dlperf.command.history import AXES, COLUMNS
from pytest_dlperf.command.main import main
from pytest_dlperf.history.schema import TABLES
from pytest_dlperf.model.judgement import Verdict

OTHER = "tiny-mlp-fp16-b4-4n8g"
PAGE = Path(__file__).parent.parent / "docs" / "results-file.md"


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    """Two nights: a good one, and one with a loss of memory, a broken run and no host."""
    monkeypatch.chdir(tmp_path)
    good = case_result(CASE, [400.0, 402.0], baseline=400.0)
    memory = case_result(CASE, [900.0], metric=MEMORY)
    worse = judged(Verdict.REGRESSED, metric=MEMORY, accepted=800.0, difference_percent=12.5)
    memory = with_judgement(memory, worse)
    broken = case_result(CASE, [390.0, None], verdict=Verdict.FAILED)
    gone = unmeasured_case(OTHER, Verdict.FAILED, "host b is gone")
    file = tmp_path / "h.sqlite3"
    add(
        file,
        session(0, [good], environment={"commit": "abc1234"}),
        session(1, [memory], cluster='lab, "east"\n\x1b[31m'),
        session(2, [broken, gone], ended=None),
    )
    return file


def exported(capsys, *arguments):
    capsys.readouterr()
    assert main(["history", "export", "--history", "h.sqlite3", *arguments]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def refused(capsys, *arguments):
    assert main(["history", "export", "--history", "h.sqlite3", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_a_row_has_all_of_a_measurement(capsys):
    row = exported(capsys)[0]
    assert list(row) == [*COLUMNS, *AXES]
    assert float(row.pop("noise_percent")) == pytest.approx(0.3527, abs=1e-4)
    assert row == {
        "started": night(0), "ended": night(0), "session": "night-0", "cluster": "local",
        "estimator": "steady", "case": CASE, "framework": "tiny", "model": "mlp",
        "precision": "fp32", "nodes": "1", "devices_per_node": "1", "metric": "throughput",
        "unit": "samples/s", "better": "higher", "value": "401.0", "lowest": "400.0",
        "highest": "402.0", "runs": "2", "broken_runs": "0", "accepted": "400.0",
        "reference": "400.0", "loss_percent": "-0.1", "verdict": "pass", "hosts": "a",
        "commit": "abc1234",
    }  # fmt: skip


def test_less_of_what_should_be_low_is_no_loss(capsys):
    [row] = exported(capsys, "--metric", "peak_memory")
    assert (row["better"], row["loss_percent"], row["verdict"]) == ("lower", "12.5", "regressed")


def test_what_was_not_measured_has_no_number(capsys):
    broken, gone = exported(capsys)[2:]
    assert (broken["value"], broken["broken_runs"], broken["verdict"]) == ("390.0", "1", "failed")
    assert (gone["case"], gone["verdict"], gone["runs"]) == (OTHER, "failed", "0")
    assert {gone[name] for name in ("value", "loss_percent", "noise_percent", "hosts")} == {""}


def test_a_row_is_a_line_whatever_it_holds(capsys):
    exported(capsys)
    main(["history", "export", "--history", "h.sqlite3"])
    text = capsys.readouterr().out
    assert text.count("\n") == 5
    assert "\x1b" not in text
    assert exported(capsys)[1]["cluster"] == 'lab, "east"\\n\\x1b[31m'


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["*-4n8g"], [2]),
        (["--cluster", "local", CASE], [0, 2]),
        (["--metric", "peak_memory"], [1]),
        (["--metric", "peak_memory", "--cluster", "local"], []),
    ],
)
def test_rows_are_chosen_as_cases_are_shown(capsys, arguments, rows):
    found = exported(capsys, *arguments)
    assert [row["session"] for row in found] == [f"night-{number}" for number in rows]


def test_a_file_is_written_whole(capsys):
    rows = exported(capsys)
    assert exported(capsys, "--output", "new/h.csv") == []
    with Path("new/h.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == rows


def test_bad_input_is_told(capsys):
    Path("file").touch()
    told = "no metric 'memory'; there are: peak_memory, throughput"
    assert told in refused(capsys, "--metric", "memory")
    assert "the history has no cluster 'west'" in refused(capsys, "--cluster", "west")
    assert "did you mean" in refused(capsys, CASE.replace("1g", "9g"))
    assert "--output: file/h.csv: " in refused(capsys, "--output", "file/h.csv")


def test_an_empty_history_has_a_heading(capsys):
    with closing(sqlite3.connect("h.sqlite3")) as connection, connection:
        connection.execute("DELETE FROM sessions")
        connection.execute("DELETE FROM measurements")
    assert exported(capsys) == []


# ------------------------------------------------------------------------ the tables


def test_every_table_and_column_is_documented_and_none_else():
    text = PAGE.read_text(encoding="utf-8").partition("## Tables of the history")[2]
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|$", text.partition("\n## ")[0], re.MULTILINE)
    documented = {table: set(re.findall(r"`(\w+)`", cells)) for table, cells in rows}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        there = {
            table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for (table,) in names.fetchall()
        }
    assert documented == there

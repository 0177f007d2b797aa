"""``pytest-dlperf history``: results of other machines come in, and what is there is shown."""

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from histories import CASE, case_result, drawn, fill, night, session
from msgspec.structs import replace
from results_makers import MEMORY, measured_case

from pytest_dlperf.command.main import main
from pytest_dlperf.history.store import History
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.results.file import write_json

OTHER = "tiny-mlp-fp32-b4-1n2g"
LARGE = "tiny-mlp-fp16-b4-4n8g"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, without any setting."""
    monkeypatch.chdir(tmp_path)
    for name in ("DLPERF_HISTORY", "COLUMNS", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def results_file(number):
    file = Path(f"night-{number}.json")
    write_json(file, session(number, {CASE: [400.0, 402.0]}))
    return file


def sessions(file=".dlperf/history.sqlite3"):
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT uid FROM sessions ORDER BY uid").fetchall()
    return [uid for (uid,) in found]


# ------------------------------------------------------------------ taking results in


def test_results_of_another_machine_come_in(command):
    done = command("history", "import", results_file(0), results_file(1))
    assert done.ret == 0, done.errlines
    assert done.outlines[-1].startswith("2 sessions imported into ")
    assert done.outlines[-1].endswith(".dlperf/history.sqlite3")
    assert sessions() == ["night-0", "night-1"]
    with closing(sqlite3.connect(".dlperf/history.sqlite3")) as connection:
        assert connection.execute("SELECT median, verdict FROM measurements").fetchall() == [
            (401.0, "pass"), (401.0, "pass")
        ]  # fmt: skip


def test_what_is_there_is_told_and_stays(capsys):
    file = str(results_file(0))
    main(["history", "import", "--history", "h.sqlite3", file])
    before = Path("h.sqlite3").read_bytes()
    capsys.readouterr()
    assert main(["history", "import", "--history", "h.sqlite3", file]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "there already: night-0.json",
        "0 sessions imported into h.sqlite3",
    ]
    assert Path("h.sqlite3").read_bytes() == before


def test_a_session_is_not_imported_over_itself(capsys):
    fill(Path("h.sqlite3"), [[400.0, 402.0]])
    assert main(["history", "import", "--history", "h.sqlite3", str(results_file(0))]) == 0
    assert "there already: night-0.json" in capsys.readouterr().out
    assert sessions("h.sqlite3") == ["night-0"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"schema": 1}',
        '{"schema": 2}',
        '{"schema": 99, "cases": []}',
        '{"dependencies": {"left-pad": "1"}}',
        "\udcff\udcfe",
    ],
)
def test_a_bad_file_is_told_and_the_good_ones_are_kept(capsys, content):
    Path("bad.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    good = [str(results_file(number)) for number in range(2)]
    code = main(["history", "import", "--history", "h.sqlite3", good[0], "bad.json", good[1]])
    assert code == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("not imported: ")
    assert "bad.json" in told[0]
    assert told[-1] == "2 sessions imported into h.sqlite3"
    assert sessions("h.sqlite3") == ["night-0", "night-1"]


def test_a_time_that_is_none_is_told(capsys):
    file = results_file(0)
    plain = json.loads(file.read_text(encoding="utf-8"))
    plain["started"] = "some day"
    file.write_text(json.dumps(plain), encoding="utf-8")
    assert main(["history", "import", "--history", "h.sqlite3", str(file)]) == 1
    assert "some day" in capsys.readouterr().out


def test_a_folder_stands_for_the_files_in_it():
    for number in range(3):
        place = Path("artefacts") / str(number) / "results.json"
        place.parent.mkdir(parents=True)
        results_file(number).rename(place)
    assert main(["history", "import", "--history", "h.sqlite3", "artefacts"]) == 0
    assert len(sessions("h.sqlite3")) == 3


def test_what_is_no_file_is_passed_over(capsys):
    folder = Path("artefacts")
    (folder / "all.json").mkdir(parents=True)
    os.mkfifo(folder / "pipe.json")
    results_file(0).rename(folder / "results.json")
    assert main(["history", "import", "--history", "h.sqlite3", "artefacts"]) == 0
    assert capsys.readouterr().out == "1 session imported into h.sqlite3\n"


def test_a_file_with_a_case_that_is_none_is_named(capsys):
    file = results_file(0)
    plain = json.loads(file.read_text(encoding="utf-8"))
    plain["cases"][0]["case"]["framework"] = "No Name"
    file.write_text(json.dumps(plain), encoding="utf-8")
    assert main(["history", "import", "--history", "h.sqlite3", str(file)]) == 1
    assert capsys.readouterr().out.startswith("not imported: night-0.json: ")


@pytest.mark.parametrize("given", ["missing.json", "empty"])
def test_nothing_to_import_is_misuse(capsys, given):
    Path("empty").mkdir()
    assert main(["history", "import", "--history", "h.sqlite3", given]) == 2
    assert given in capsys.readouterr().err
    assert not Path("h.sqlite3").exists()


def test_a_database_that_cannot_be_used_is_misuse(capsys):
    Path("h.sqlite3").write_text("no database", encoding="utf-8")
    assert main(["history", "import", "--history", "h.sqlite3", str(results_file(0))]) == 2
    assert "h.sqlite3 is not a database" in capsys.readouterr().err


# ------------------------------------------------------------------------- its place


def test_the_environment_names_the_database(monkeypatch):
    monkeypatch.setenv("DLPERF_HISTORY", "there.sqlite3")
    assert main(["history", "import", str(results_file(0))]) == 0
    assert sessions("there.sqlite3") == ["night-0"]


def test_an_environment_that_names_nothing_is_none(folder, monkeypatch, command):
    monkeypatch.setenv("DLPERF_HISTORY", " ")
    assert command("history", "import", results_file(0)).ret == 0
    assert sessions(folder / ".dlperf/history.sqlite3") == ["night-0"]


@pytest.mark.parametrize("way", ["option", "environment"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("/dev/null", "'/dev/null' is not a regular file"),
        ("None ", "no history is kept here"),
    ],
)
def test_a_database_is_named_by_the_rules_of_sessions(
    capsys,
    monkeypatch,
    way,
    given,
    told,
):
    named = ["--history", given] if way == "option" else []
    monkeypatch.setenv("DLPERF_HISTORY", given if way == "environment" else "other.sqlite3")
    assert main(["history", "import", *named, str(results_file(0))]) == 2
    assert told in capsys.readouterr().err


def test_the_database_is_that_of_sessions_here(folder, command):
    """Of the project, as the ini file says it, also from a folder below."""
    (folder / "pytest.ini").write_text(
        "[pytest]\ndlperf_history = kept/all.sqlite3\n", encoding="utf-8"
    )
    file = results_file(0).resolve()
    (folder / "below").mkdir()
    os.chdir(folder / "below")
    assert command("history", "import", file).ret == 0
    assert sessions(folder / "kept" / "all.sqlite3") == ["night-0"]


@pytest.mark.parametrize("way", ["environment", "ini"])
def test_where_no_history_is_kept_a_place_has_to_be_named(folder, monkeypatch, command, way):
    if way == "environment":
        monkeypatch.setenv("DLPERF_HISTORY", "none")
    else:
        (folder / "pytest.ini").write_text("[pytest]\ndlperf_history = none\n", encoding="utf-8")
    done = command("history", "import", results_file(0))
    assert done.ret == 2
    assert "no history is kept here" in done.stderr.str()
    assert command("history", "import", results_file(0), "--history", "h.sqlite3").ret == 0


# ---------------------------------------------------------------------------- showing


FIRST_NIGHT = night(0)


def accepted_as(number, why, runs, *, at=FIRST_NIGHT):
    """What a session came to whose accepted number has this reason."""
    result = case_result(CASE, runs, baseline=number)
    source = Acceptance(at=at, reason=why)
    known = replace(result.accepted["throughput"], acceptance=source)
    return replace(result, accepted={"throughput": known})


def show(capsys, *arguments):
    assert main(["history", "show", "--history", "h.sqlite3", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_case_is_shown_with_all_that_its_nights_show(capsys):
    with History.open(Path("h.sqlite3")) as history:
        for number, runs in enumerate(drawn([400.0] * 40 + [388.0] * 20)):
            result = accepted_as(400.0 if number < 46 else 388.0, "driver 570", runs, at=night(45))
            commit = {"commit": f"{number:07}abcde"}
            history.add(session(number, [result], environment=commit))
    lines = show(capsys)
    assert lines[:2] == ["throughput, cluster local (steady)", CASE]
    assert lines[2].endswith(" samples/s last, 60 sessions 2026-01-01 to 2026-03-01")
    assert lines[3].startswith("  2026-02-10  level changed by -2.")
    assert lines[4].strip() == "commit 0000040, in the session before it 0000039"
    assert lines[5] == "  2026-02-15  accepted 388.00, instead of 400.00: driver 570"
    assert lines[6].startswith("  noise of runs: 1.1 %")
    assert len(lines) == 7


def test_a_change_has_the_commit_of_the_session_before_it_on_the_same_machine(capsys):
    with History.open(Path("h.sqlite3")) as history:
        for number, runs in enumerate(drawn([400.0] * 40 + [388.0] * 20)):
            commit = {"commit": f"{number:07}abcde"}
            history.add(session(number, [case_result(CASE, runs)], environment=commit))
        other = case_result(CASE, [700.0])
        elsewhere = Fingerprint(machine={"device": "V100"})
        other = replace(other, measurement=replace(other.measurement, fingerprint=elsewhere))
        between = night(39).replace("T0", "T1")
        commit = {"commit": "bbbbbbbbbbbb"}
        history.add(session(100, [other], started=between, environment=commit))
    assert "  commit 0000040, in the session before it 0000039" in show(capsys)[-2]


def test_drift_is_shown(capsys):
    fill(Path("h.sqlite3"), drawn([400.0 * (1 - 0.002 * k) for k in range(30)]))
    (line,) = [line for line in show(capsys) if "drifts" in line]
    assert line.startswith("  drifts -1.")
    assert " a week since 2026-01-01 (30 days), -6." in line


def memory_of_nights(nights=60):
    with History.open(Path("h.sqlite3")) as history:
        for number, runs in enumerate(drawn([900.0] * 40 + [954.0] * (nights - 40))):
            result = measured_case(CASE, *runs, unit="samples/s", more={MEMORY: runs})
            history.add(session(number, [result]))


def test_any_metric_can_be_asked_for(capsys):
    memory_of_nights()
    lines = show(capsys, "--metric", "peak_memory")
    assert lines[:2] == ["peak_memory, cluster local (steady)", CASE]
    assert lines[2].endswith(" MB last, lower is better, 60 sessions 2026-01-01 to 2026-03-01")
    assert lines[3].startswith("  2026-02-10  level changed by +")


@pytest.mark.parametrize(("metric", "colour"), [("throughput", 32), ("peak_memory", 31)])
def test_the_colour_says_what_is_better(capsys, monkeypatch, metric, colour):
    memory_of_nights()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    [line] = [line for line in show(capsys, "--metric", metric) if "level changed" in line]
    assert f"level changed by \033[{colour}m+" in line


def test_an_unknown_metric_is_told_with_those_that_there_are(
    capsys,
):
    memory_of_nights(nights=41)
    assert main(["history", "show", "--history", "h.sqlite3", "--metric", "memory"]) == 2
    told = capsys.readouterr().err
    assert "--metric" in told
    assert "no metric 'memory'; there are: peak_memory, throughput" in told


def several():
    tonight = session(1, [case_result(case_id, [400.0]) for case_id in (CASE, OTHER, LARGE)])
    with History.open(Path("h.sqlite3")) as history:
        history.add(tonight)
        history.add(replace(tonight, session="elsewhere", cluster="dlperf-v100"))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--cluster", "local"], [LARGE, CASE, OTHER]),
        (["--cluster", "local", "*-fp32-*"], [CASE, OTHER]),
        (["--cluster", "dlperf-v100", OTHER, "*4n8g"], [LARGE, OTHER]),
        (["*-1n1g"], [CASE, CASE]),
    ],
)
def test_cases_and_clusters_are_chosen(capsys, arguments, shown):
    several()
    lines = show(capsys, *arguments)
    assert [line for line in lines if line.startswith("tiny")] == shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tiny-mlp-fp32-b4-1n3g"], "did you mean 'tiny-mlp-fp32-b4-1n"),
        (["*bert*"], "* stands for anything"),
        (["--cluster", "nowhere"], "there are: dlperf-v100, local"),
    ],
)
def test_what_is_not_there_is_told(capsys, arguments, told):
    several()
    assert main(["history", "show", "--history", "h.sqlite3", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_missing_database_is_not_made_by_looking(capsys):
    assert main(["history", "show", "--history", "h.sqlite3"]) == 2
    assert "there is no history h.sqlite3" in capsys.readouterr().err
    assert not Path("h.sqlite3").exists()


def test_an_empty_database_says_so(capsys):
    History.open(Path("h.sqlite3")).close()
    assert show(capsys) == ["h.sqlite3 holds no measurement yet"]


def test_lines_stay_within_80_columns_and_print_no_control_characters(
    capsys,
):
    why = "a driver\x1b[31m that\nlasts " * 9
    with History.open(Path("h.sqlite3")) as history:
        for number, accepted in enumerate((400.0, 410.0)):
            result = accepted_as(accepted, why, [400.0])
            history.add(session(number, [result], cluster="a\x1b[31mb"))
    lines = show(capsys)
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert any("a driver" in line for line in lines)


def test_no_line_is_a_command_to_what_runs_this(capsys):
    why = "::error:: " * 20 + "##[error]"
    with History.open(Path("h.sqlite3")) as history:
        for number, accepted in enumerate((400.0, 410.0)):
            result = accepted_as(accepted, why, [400.0])
            history.add(session(number, [result], cluster="::group::x"))
    lines = show(capsys)
    assert any(line.startswith(r"  \::error::") for line in lines)
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in lines)


def test_another_machine_and_a_lost_case_are_shown(capsys):
    before = case_result(CASE, [400.0])
    assert before.measurement is not None
    elsewhere = Fingerprint(machine={"device": "V100\x1b[31m"})
    before = replace(before, measurement=replace(before.measurement, fingerprint=elsewhere))
    lost = replace(case_result(CASE, [800.0]), is_whole=False)
    with History.open(Path("h.sqlite3")) as history:
        history.add(session(0, [before]))
        history.add(session(1, [lost]))
    lines = show(capsys)
    assert lines[2].startswith("  800.00 samples/s last, lost with its worker, 2 sessions ")
    assert " ".join(map(str.strip, lines[3:5])) == (
        "1 session on 2026-01-01 on another machine (device V100\\x1b[31m, now H200): in no level, "
        "drift or noise"
    )


def test_nights_of_a_whole_day_are_shown_by_their_date(capsys):
    fill(Path("h.sqlite3"), [[400.0]])
    assert f"  400.00 samples/s last, 1 session {night(0)[:10]} to {night(0)[:10]}" in show(capsys)

"""``pytest-dlperf notify``, and ``history overdue``: the night did not come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from histories import CASE, case_result, session
from msgspec.structs import replace
from notice_servers import LOOPBACK, Response, Web, web_server
from test_notices import SECRET, green, red

from pytest_dlperf.command.main import main
from pytest_dlperf.history.rows import session_row
from pytest_dlperf.history.store import History
from pytest_dlperf.model.results import Results
from pytest_dlperf.results.file import write_json

FINE, FAULTS, MISUSE = 0, 1, 2


@pytest.fixture(autouse=True)
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "PYTEST_ADDOPTS", "http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with web_server() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/services/{SECRET}")
        yield web


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the command; no secret is in what it prints."""
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(str(exit_.code))
    printed = "".join(capsys.readouterr())
    assert SECRET not in printed
    return code, printed


def results_file(results: Results, name: str = "results.json") -> str:
    write_json(Path(name), results)
    return name


# ------------------------------------------------------------------------------ notify


def test_a_results_file_is_told(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    page = "https://pages.example/night"
    given = (results_file(red()), "--to", "json=HOOK", "--page", page)
    assert run(capsys, "notify", *given) == (
        FINE, f"notice sent: json ({LOOPBACK}:{web.port})\n"
    )  # fmt: skip
    [asked] = web.asked
    assert asked.json["session"]["counts"] == {"failed": 1, "regressed": 1}
    assert page in asked.json["text"]


def test_a_green_one_is_told_where_that_is_asked_for(
    web: Web, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("notify", results_file(green()), "--to", "json=HOOK")
    code, printed = run(capsys, *given)
    assert (code, web.asked) == (FINE, [])
    assert "no notice is due" in printed
    assert "the only case passes" in printed
    assert run(capsys, *given, "--on", "always")[0] == FINE
    assert not web.asked[0].json["red"]


def test_a_change_needs_the_history(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    last = red()
    with History.open(Path("h.sqlite3")) as history:
        history.add(replace(last, session="before", started="2026-11-19T22:00:00+01:00"))
        history.add(last)
    given = ("notify", results_file(last), "--to", "json=HOOK", "--on", "change")
    # The failed case has no measurement, so no history has it: it is told each time.
    assert run(capsys, *given)[0] == FINE
    measured = results_file(replace(last, cases=last.cases[:1]), "measured.json")
    code, printed = run(capsys, "notify", measured, *given[2:], "--history", "h.sqlite3")
    assert code == FINE
    assert "no notice is due" in printed
    assert len(web.asked) == 1


def test_without_to_those_of_this_folder_are_told(
    web: Web, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pytest.ini").write_text(
        "[pytest]\ndlperf_notify = json=HOOK\ndlperf_notify_on = always\n", encoding="utf-8"
    )
    Path("conftest.py").write_text(
        "from pytest_dlperf.notices.notice import Notifier\n"
        "class Lamp(Notifier):\n    name = 'lamp'\n    def send(self, notice): pass\n"
        "def pytest_dlperf_notifiers(config): return [Lamp()]\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    file = results_file(green())
    assert run(capsys, "notify", file) == (
        FINE, f"notice sent: json ({LOOPBACK}:{web.port}), lamp\n"
    )  # fmt: skip


def test_a_test_says_that_it_is_one(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "notify", "--test", "--to", "slack=HOOK")[0] == FINE
    assert "a test" in web.asked[0].json["text"]
    web.answers(Response(404, b"no_service"))
    code, printed = run(capsys, "notify", "--test", "--to", "slack=HOOK", "--to", "github")
    assert code == FAULTS
    assert "404 Not Found (no_service)" in printed
    assert "not sent, no receiver here: github" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "results file"),
        (("results.json", "--test"), "results file"),
        (("results.json", "--to", f"slak=https://h/{SECRET}"), "'slak'"),
        (("no-such.json", "--to", "json=HOOK"), "no-such.json"),
        (("results.json", "--to", "json=HOOK", "--on", "sundays"), "sundays"),
    ],
)
def test_misuse_is_told(
    web: Web, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    results_file(red())
    code, printed = run(capsys, "notify", *arguments)
    assert (code, web.asked) == (MISUSE, [])
    assert words in printed


# ----------------------------------------------------------------------------- overdue


def now() -> datetime:
    return datetime.now().astimezone().replace(microsecond=0)


def came(
    number: int, ended_ago: timedelta, *, cluster: str = "lab", cases: int = 2, **more: object
) -> Results:
    """A session that ended so long ago, after an hour."""
    ended = now() - ended_ago
    return session(
        number,
        [case_result(f"tiny-mlp-fp32-b4-1n{2**each}g", [400.0]) for each in range(cases)],
        cluster=cluster,
        started=(ended - timedelta(hours=1)).isoformat(),
        ended=ended.isoformat(),
        environment={"commit": "abcdef1234567", "ci_run": "https://ci.example/7"},
        **more,
    )


def history_of(*sessions: Results) -> list[str]:
    with History.open(Path("h.sqlite3")) as history:
        for one in sessions:
            history.add(one)
    return ["history", "overdue", "--history", "h.sqlite3"]


def test_a_night_that_came_is_fine(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    command = history_of(came(1, timedelta(hours=30)), came(2, timedelta(hours=5, minutes=2)))
    code, printed = run(capsys, *command, "--within", "26h", "--to", "json=HOOK")
    assert (code, web.asked) == (FINE, [])
    assert "5 h 2 min ago" in printed
    assert "2 cases measured" in printed
    assert "commit abcdef1" in printed


def test_a_night_that_did_not_come_is_told(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    last = came(1, timedelta(days=2, hours=3))
    command = history_of(last)
    began = now() - timedelta(hours=20)
    with History.open(Path("h.sqlite3")) as history:
        row = session_row(
            uid="killed", cluster="lab", estimator="steady", started=began.isoformat()
        )
        history.note(row, [case_result(CASE, [400.0])])
    code, printed = run(capsys, *command, "--within", "26h", "--to", "json=HOOK")
    assert code == FAULTS
    subject, whole, later, told = printed.splitlines()
    assert subject.startswith("dlperf lab: no whole session within 26 h; the last ended ")
    ended = datetime.fromisoformat(last.ended or "")
    for line in (subject, whole):
        assert f"{ended:%A %Y-%m-%d %H:%M} (2 d 3 h ago)" in line
    assert "commit abcdef1" in whole
    assert f"{began:%A %Y-%m-%d %H:%M}" in later
    assert "1 case measured" in later
    assert "still runs, or was killed" in later
    assert told == f"notice sent: json ({LOOPBACK}:{web.port})"
    [asked] = web.asked
    assert asked.json["subject"] == subject
    assert (asked.json["red"], asked.json["session"]) == (True, None)
    assert asked.json["cluster"] == "lab"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"interrupted": True}, "it was interrupted "),
        ({"cases": 1}, "with too few cases"),
    ],
)
def test_what_is_not_whole_is_no_night(
    capsys: pytest.CaptureFixture[str], more: dict[str, Any], words: str
) -> None:
    command = history_of(came(1, timedelta(hours=40)), came(2, timedelta(hours=3), **more))
    code, printed = run(capsys, *command, "--within", "1d", "--cases", "2")
    assert code == FAULTS
    assert "(40 h ago)" in printed
    assert words in printed


def test_each_cluster_has_to_come(capsys: pytest.CaptureFixture[str]) -> None:
    command = history_of(came(1, timedelta(hours=3)), came(2, timedelta(hours=40), cluster="other"))
    code, printed = run(capsys, *command, "--within", "1.5d")
    assert code == FAULTS
    assert "dlperf other:" in printed
    assert run(capsys, *command, "--within", "26h", "--cluster", "lab")[0] == FINE
    code, printed = run(capsys, *command, "--within", "26h", "--cluster", "labb")
    assert code == FAULTS
    assert "no whole session of labb is known" in printed


def test_a_session_of_a_clock_ahead_does_not_stand_for_nights_to_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, skewed = came(2, -timedelta(days=300)), came(3, -timedelta(minutes=5))
    code, printed = run(capsys, *history_of(came(1, timedelta(hours=40)), wrong), "--within", "26h")
    assert code == FAULTS
    assert "(40 h ago)" in printed
    assert run(capsys, *history_of(skewed), "--within", "26h")[0] == FINE


def test_only_an_address_becomes_a_link(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    last = came(1, timedelta(days=3))
    command = history_of(replace(last, environment={"ci_run": "javascript:alert(1)"}))
    assert run(capsys, *command, "--within", "26h", "--to", "json=HOOK")[0] == FAULTS
    assert web.asked[0].json["ci_run"] is None
    assert "javascript:alert(1)" in web.asked[0].json["text"]


def test_results_files_tell_it_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nights").mkdir()
    results_file(came(1, timedelta(hours=50)), "nights/a.json")
    results_file(came(2, timedelta(hours=27)), "nights/b.json")
    given = ("history", "overdue", "nights", "--within")
    code, printed = run(capsys, *given, "26h")
    assert code == FAULTS
    assert "27 h ago" in printed
    assert run(capsys, *given, "28h")[0] == FINE


def test_a_notice_that_cannot_be_sent_is_told(web: Web, capsys: pytest.CaptureFixture[str]) -> None:
    web.answers(Response(410))
    command = history_of(came(1, timedelta(days=3)))
    code, printed = run(capsys, *command, "--within", "26h", "--to", "slack=HOOK")
    assert code == FAULTS
    assert "410 Gone" in printed


@pytest.mark.parametrize("time", ["26", "h", "0h", "-1h", "26 hours", "1e9h", ""])
def test_a_time_has_a_unit(capsys: pytest.CaptureFixture[str], time: str) -> None:
    code, printed = run(capsys, *history_of(), f"--within={time}")
    assert code == MISUSE
    assert "26h" in printed


def test_without_any_session_nothing_can_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(capsys, *history_of(), "--within", "26h")
    assert code == MISUSE
    assert "--cluster" in printed
    code, printed = run(capsys, "history", "overdue", "--history", "no.db", "--within", "1h")
    assert (code, json.dumps(printed).count("no.db")) == (MISUSE, 1)

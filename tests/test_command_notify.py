"""``pytest-dlperf notify``: what a results file says is sent."""

import base64
from pathlib import Path

import pytest
import results_makers as make
from msgspec.structs import replace
from notice_servers import LOOPBACK, Response, web_server
from noticed_sessions import CASE, SECRET, green, red

from pytest_dlperf.command.main import main
from pytest_dlperf.history.store import History
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.results.file import write_json

FINE, FAULTS, MISUSE = 0, 1, 2


@pytest.fixture(autouse=True)
def web(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "PYTEST_ADDOPTS", "http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with web_server() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/services/{SECRET}")
        yield web


def run(capsys, *arguments):
    """Run the command; no secret is in what it prints."""
    try:
        code = main(arguments)
    except SystemExit as exit_:
        code = int(str(exit_.code))
    printed = "".join(capsys.readouterr())
    assert SECRET not in printed
    return code, printed


def results_file(results, name="results.json"):
    write_json(Path(name), results)
    return name


# ------------------------------------------------------------------------------ notify


def test_no_file_is_read_that_a_results_file_names_as_a_log(web, capsys, monkeypatch):
    Path("private").write_text("for your eyes only", encoding="utf-8")
    case = make.measured_case(CASE, 1.0, broken=[RunStatus.FAILED], verdict=Verdict.FAILED)
    runs = tuple(replace(run, log=str(Path("private").absolute())) for run in case.measurement.runs)
    results = make.session(replace(case, measurement=replace(case.measurement, runs=runs)))
    monkeypatch.setenv("HOOK", f"json://{LOOPBACK}:{web.port}/{SECRET}")

    assert run(capsys, "notify", results_file(results), "--to", "apprise+page=HOOK")[0] == FINE

    [page] = web.asked[0].json["attachments"]
    text = base64.b64decode(page["base64"]).decode()
    assert "private" in text
    assert "for your eyes only" not in text


def test_a_results_file_is_told(web, capsys):
    page = "https://pages.example/night"
    given = (results_file(red()), "--to", "json=HOOK", "--page", page)
    assert run(capsys, "notify", *given) == (
        FINE, f"notice sent: json ({LOOPBACK}:{web.port})\n"
    )  # fmt: skip
    [asked] = web.asked
    assert asked.json["session"]["counts"] == {"failed": 1, "regressed": 1}
    assert page in asked.json["text"]


def test_what_else_made_a_session_fail_is_told(web, capsys):
    file = results_file(replace(green(), faults=("the page could not be written to x: disk full",)))
    assert run(capsys, "notify", file, "--to", "json=HOOK")[0] == FINE
    [asked] = web.asked
    assert asked.json["red"]
    assert "disk full" in asked.json["text"]


def test_a_green_one_is_told_where_that_is_asked_for(web, capsys):
    given = ("notify", results_file(green()), "--to", "json=HOOK")
    code, printed = run(capsys, *given)
    assert (code, web.asked) == (FINE, [])
    assert "no notice is due" in printed
    assert "the only case passes" in printed
    assert run(capsys, *given, "--on", "always")[0] == FINE
    assert not web.asked[0].json["red"]


def test_a_change_needs_the_history(web, capsys):
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


def test_without_to_those_of_this_folder_are_told(web, capsys, monkeypatch):
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


def test_a_test_says_that_it_is_one(web, capsys):
    assert run(capsys, "notify", "--test", "--to", "json=HOOK")[0] == FINE
    assert "a test" in web.asked[0].json["text"]
    web.answers(Response(404, b"no_service"))
    code, printed = run(capsys, "notify", "--test", "--to", "json=HOOK", "--to", "github")
    assert code == FAULTS
    assert "404 Not Found" in printed
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
def test_misuse_is_told(web, capsys, arguments, words):
    results_file(red())
    code, printed = run(capsys, "notify", *arguments)
    assert (code, web.asked) == (MISUSE, [])
    assert words in printed

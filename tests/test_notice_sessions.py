"""Notices of real sessions: who is told what, once, and no secret anywhere."""

import signal
import sqlite3
from contextlib import closing

import pytest
from nights import Nights
from notice_servers import LOOPBACK, Response, web_server
from sessions import in_background
from trainers import TinySystem

SECRET = "T024-hook-SeCrEt"  # noqa: S105 - that of these tests
LAMP = """
from pytest_dlperf.notices.notice import Notifier
class Lamp(Notifier):
    name = "lamp"
    is_told_always = True
    def send(self, notice):
        with open("lamp.txt", "a") as file:
            print("red" if notice.is_red else "green", notice.cluster, file=file)
        raise RuntimeError("https://lamp.example/{secret}")
def pytest_dlperf_notifiers(config):
    return [Lamp()]
"""


@pytest.fixture
def web(suite, monkeypatch):
    """A service whose address with its secret is in the variable ``HOOK`` of the sessions."""
    del suite  # it clears the environment, so it comes first
    with web_server() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/services/{SECRET}")
        yield web


@pytest.mark.parametrize("with_workers", [False, True])
def test_a_red_session_tells_everybody_once_and_no_secret(suite, web, monkeypatch, *, with_workers):
    suite.pytester.makeconftest(LAMP.format(secret=SECRET))
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 5, "1n2g": [760.0] * 5})
    web.answer = lambda asked: (
        Response(400, asked.path.encode()) if asked.method == "GET" else Response()
    )
    workers = ("-n", "2") if with_workers else ()
    files = {name: suite.path / name for name in ("r.json", "h.sqlite3", "j.xml", "p.html", "m.md")}
    monkeypatch.setenv("SERVICES", f"xml://{LOOPBACK}:{web.port}/{SECRET}")
    monkeypatch.setenv("DLPERF_NOTIFY", "ping=HOOK json=HOOK apprise=SERVICES github")
    result = suite.run(
        *nights.usual("now", of_1n2g=0.9),
        *("--dlperf-json", files["r.json"], "--dlperf-history", files["h.sqlite3"]),
        *("--junitxml", files["j.xml"], "--dlperf-html", files["p.html"], "-vv"),
        *("--dlperf-markdown", files["m.md"], *workers),
    )
    result.assert_outcomes(passed=1, failed=2)
    host = f"{LOOPBACK}:{web.port}"
    result.stdout.fnmatch_lines(
        [
            f"notice sent: json ({host}), apprise (xml)",
            f"no notice was sent by ping ({host}): {host} answers 400 Bad Request",
            "no notice was sent by lamp: RuntimeError*",
        ]
    )
    [posted] = [asked.json for asked in web.asked if asked.body.startswith(b"{")]
    [message] = [asked.body.decode() for asked in web.asked if asked.body.startswith(b"<?xml")]
    assert posted["subject"] in message
    assert " got slower, -" in posted["subject"]
    assert posted["red"]
    lamp = (suite.path / "lamp.txt").read_text(encoding="utf-8")
    assert lamp == "red local\n"
    told = str(result.stdout) + str(result.stderr)
    assert SECRET not in told
    for file in files.values():
        assert SECRET.encode() not in file.read_bytes(), file


def test_a_green_session_stays_green_whatever_becomes_of_its_notice(suite, web):
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 5, "1n2g": [760.0] * 5})
    web.answers(Response(404))
    suite.pytester.makeini(
        "[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n"
        "dlperf_notify =\n    ping=HOOK\n    json=NO_SUCH_HOOK\n    healthchecks=HOOK\n"
        "dlperf_notify_on = always\n"
    )
    night = nights.usual("now")
    result = suite.run(*night)
    assert result.ret == 0
    assert str(result.stdout).count("no notice was sent") == 3
    result.stdout.fnmatch_lines(
        [
            "dlperf: ini key dlperf_notify json: *NO_SUCH_HOOK is not set; no notice will be sent",
            f"no notice was sent by healthchecks ({LOOPBACK}:{web.port}): *404*",
            f"no notice was sent by ping ({LOOPBACK}:{web.port}): *404*",
            "no notice was sent by json: ini key dlperf_notify json: *NO_SUCH_HOOK is not set",
        ]
    )
    web.asked.clear()
    suite.run(*night, "--dlperf-notify-on=failure", "--dlperf-notify=json=HOOK")
    suite.run("--collect-only", "-q", "--dlperf-notify=json=HOOK")
    assert web.asked == []


def test_a_session_that_is_ended_tells_it(suite, web):
    """By SIGTERM, as from a scheduler, while a run hangs."""
    system = TinySystem(suite, topologies=("1n1g",))
    system.behave("0.01 hang-at-3")
    asked = ("-k", "tiny and throughput", "--dlperf-notify=json=HOOK", "--dlperf-create-baselines")
    with in_background(suite, *asked, "--dlperf-notify=healthchecks=HOOK") as session:
        session.wait_until(lambda: web.asked, what="the first ping")
        session.wait_until(system.starts, what="a run")
        session.process.send_signal(signal.SIGTERM)
        assert session.result() == pytest.ExitCode.INTERRUPTED
        output = session.output
    start, *ends = web.asked
    assert start.path.endswith("/start")
    [posted] = [one.json for one in ends if b"schema" in one.body]
    assert posted["session"]["interrupted"]
    assert posted["red"]
    assert [one.path for one in ends if b"schema" not in one.body] == [f"/services/{SECRET}/fail"]
    assert "notice sent: json" in output
    with closing(sqlite3.connect(suite.path / ".dlperf" / "history.sqlite3")) as history:
        assert history.execute("SELECT interrupted FROM sessions").fetchall() == [(1,)]

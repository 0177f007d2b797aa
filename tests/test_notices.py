"""Notices and pings: what each service gets, and what is told when it gets nothing."""

import base64
import json
import math
import sys
import threading
from pathlib import Path

import pytest
import results_makers as make
from clusters.processes import LONG_S
from msgspec.structs import replace
from notice_servers import LOOPBACK, Response, self_signed, web_server
from noticed_sessions import CASE, HOSTILE, SECOND, SECRET, green, red

from pytest_dlperf.config.notices import targets
from pytest_dlperf.config.values import OptionText
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Verdict,
)
from pytest_dlperf.notices import posting
from pytest_dlperf.notices.brief import LONGEST_TEXT, notice_of
from pytest_dlperf.notices.builtin import builtin_notifiers
from pytest_dlperf.notices.notice import (
    NoticeError,
    Notifier,
    begin_all,
    lines_of,
    send_all,
)
from pytest_dlperf.notices.services import notice_data
from pytest_dlperf.report.session import session_report


@pytest.fixture
def web(monkeypatch):
    """A service whose address with its secret is in the variable ``HOOK``."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with web_server() as web:
        monkeypatch.setenv("HOOK", address(web))
        yield web


def address(web):
    return f"{web.url}/services/{SECRET}"


def notifiers(text):
    return list(builtin_notifiers(targets(OptionText(text, "--dlperf-notify", Path()))))


def sent(text, notice):
    """Send it and give the lines that a session would end with."""
    return list(lines_of(send_all(notifiers(text), notice)))


def payload(web, results):
    told = sent("json=HOOK", notice_of(session_report(results)))
    assert told == [f"notice sent: json ({LOOPBACK}:{web.port})"]
    [asked] = web.asked
    assert (asked.method, asked.path) == ("POST", f"/services/{SECRET}")
    assert asked.headers["Content-Type"].startswith("application/json")
    return asked.json


# ----------------------------------------------------------------- what each service gets


def test_json_has_the_session_as_data(web):
    data = payload(web, red("exit code 1", commit="abc", ci_run="https://ci.example/7"))

    assert data["schema"] == 1
    assert (data["red"], data["cluster"], data["ci_run"]) == (True, "lab", "https://ci.example/7")
    assert data["session"]["counts"] == {"failed": 1, "regressed": 1}
    assert data["session"]["commit"] == "abc"
    by_id = {case["id"]: case for case in data["cases"]}
    assert by_id[SECOND]["status"] == "failed"
    assert by_id[SECOND]["metrics"]["throughput"]["reason"] == "exit code 1"
    metric = by_id[CASE]["metrics"]["throughput"]
    assert (metric["verdict"], metric["median"], metric["reference"]) == ("regressed", 901, 1000)
    assert metric["explanation"]["since"]["commit"] == "abcdef1234567"
    assert data["more_cases"] == 0
    assert CASE in data["text"]


def test_json_stays_small_whatever_differs():
    """A new virtual environment is hundreds of differences in each of a hundred red cases."""
    long = tuple(
        Difference(kind=DifferenceKind.COMMAND, name=f"--x{number}", now="y" * 100_000)
        for number in range(300)
    )
    [result, *_] = red().cases
    explanation = replace(result.explanations["throughput"], differences=long)
    results = make.session(replace(result, explanations={"throughput": explanation}))

    data = notice_data(notice_of(session_report(results)))

    told = data["cases"][0]["metrics"]["throughput"]["explanation"]
    assert [one["name"] for one in told["differences"]] == [one.name for one in long[:20]]
    assert told["more_differences"] == 280
    assert len(json.dumps(data)) < 20_000


def test_a_number_that_is_none_is_null(web):
    broken = make.measured_case(CASE, math.nan, verdict=Verdict.INVALID, baseline=1.0)
    payload(web, make.session(broken))
    data = json.loads(web.asked[0].body, parse_constant=pytest.fail)
    assert data["cases"][0]["metrics"]["throughput"]["median"] is None


def test_json_of_a_green_session_lists_no_case(web):
    data = payload(web, green())
    assert (data["red"], data["cases"], data["session"]["counts"]) == (False, [], {"pass": 1})


def test_healthchecks_learns_of_begin_end_and_what_was_broken_off(web):
    known = notifiers("healthchecks=HOOK ping=HOOK")
    assert list(lines_of(begin_all(known))) == []
    assert [asked.path for asked in web.asked] == [f"/services/{SECRET}/start"]

    web.asked.clear()
    send_all(
        known, notice_of(session_report(red()), is_due=False)
    )  # red or green: the session has come
    ping, check = sorted(web.asked, key=lambda asked: asked.method)
    assert (ping.method, ping.path) == ("GET", f"/services/{SECRET}")
    assert (check.method, check.path) == ("POST", f"/services/{SECRET}")
    assert b"regressed" in check.body

    web.asked.clear()
    send_all(known, notice_of(session_report(replace(red(), interrupted=True))))
    assert [asked.path for asked in web.asked] == [f"/services/{SECRET}/fail"]


def test_who_is_not_told_always_is_told_only_what_is_due(web):
    assert sent("json=HOOK", notice_of(session_report(green()), is_due=False)) == []
    assert web.asked == []


# ------------------------------------------------------------------- what can go wrong


def test_a_busy_service_is_asked_once_more(web):
    web.answers(Response(429, b"slow down"), Response())
    assert sent("json=HOOK", notice_of(session_report(red()))) == [
        f"notice sent: json ({LOOPBACK}:{web.port})"
    ]
    assert len(web.asked) == 2


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Response(404, b"no_service"), "404 Not Found"),
        (Response(400, f"no such hook: /services/{SECRET}".encode()), "400 Bad Request"),
        (Response(403, b"<html><body>proxy</body></html>"), "403 Forbidden"),
        (Response(599, b"\x1b[2J" + b"x" * 5000), "599"),
        (Response(302, b"", {"Location": "{other}/elsewhere"}), "302 Found"),
        (Response(308, b"", {"Location": "{other}/elsewhere"}), "308 Permanent Redirect"),
    ],
)
def test_a_refusal_is_one_line_that_names_the_host_only(web, said, words):
    with web_server() as other:
        headers = {name: value.format(other=other.url) for name, value in said.headers.items()}
        web.answers(replace(said, headers=headers))
        [line] = sent("json=HOOK", notice_of(session_report(red())))
        assert other.asked == []  # no redirect takes the secret elsewhere
    # What it answers may repeat a secret, in whatever form.
    assert line.endswith(f"): {LOOPBACK}:{web.port} answers {words}")


def test_what_cannot_be_reached_is_told_without_its_path(web, monkeypatch):
    for where in (f"http://{LOOPBACK}:1/{SECRET}", f"http://no-host.invalid/{SECRET}"):
        monkeypatch.setenv("NOWHERE", where)
        bad, good = sorted(sent("ping=NOWHERE json=HOOK", notice_of(session_report(red()))))
        assert bad.startswith("no notice was sent by ping (")
        assert " cannot be reached: [Errno " in bad
        assert SECRET not in bad
        assert good.startswith("notice sent: json (")  # one does not cost another
    assert len(web.asked) == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return self_signed(tmp_path_factory.mktemp("tls"))


def test_a_certificate_that_is_not_trusted_gets_nothing(certificate, monkeypatch):
    with web_server(certificate) as web:
        monkeypatch.setenv("HOOK", f"https://{LOOPBACK}:{web.port}/{SECRET}")
        [line] = sent("json=HOOK", notice_of(session_report(red())))
        assert web.asked == []
        assert "certificate verify failed" in line
        assert SECRET not in line
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        [line] = sent("json=HOOK", notice_of(session_report(red())))
        assert line.startswith("notice sent")


def test_who_does_not_answer_is_given_up(web, monkeypatch):
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.1)
    web.answer = lambda _: Response(delay_s=0.4)
    [line] = sent("json=HOOK", notice_of(session_report(red())))
    assert "timed out" in line
    assert SECRET not in line


def test_whoever_never_ends_holds_up_nobody(monkeypatch):
    monkeypatch.setattr("pytest_dlperf.notices.notice.LIMIT_S", 5.0)
    go_on, has_ended = threading.Event(), threading.Event()
    other = Reachable()

    class Slow(Notifier):
        name = "slow one"

        def send(self, notice):
            del notice
            go_on.wait(LONG_S)
            has_ended.set()

    lines = list(lines_of(send_all([Slow(), other], notice_of(session_report(red())))))
    assert not has_ended.is_set()
    go_on.set()
    assert lines[0] == "notice sent: told"
    assert "slow one: gave up" in lines[1]


class Reachable(Notifier):
    name = "told"

    def send(self, notice):
        assert notice.subject


def test_the_errors_of_others_may_hold_secrets_and_are_not_shown():
    def failing(error):
        class Failing(Notifier):
            name = "of a plugin"

            def send(self, notice):
                del notice
                raise error

        return Failing()

    url = f"https://hooks.example/{SECRET}"
    for error, shown in (
        (RuntimeError(f"{url} has failed"), "RuntimeError"),
        (NoticeError("the lamp is off"), "the lamp is off"),
    ):
        [line] = lines_of(send_all([failing(error)], notice_of(session_report(red()))))
        assert shown in line
        assert SECRET not in line


def test_apprise_sends_plain_text_to_all_of_its_services(web, monkeypatch):
    one = f"json://{LOOPBACK}:{web.port}/{SECRET}"
    monkeypatch.setenv("HOOK", f"{one} xml://{LOOPBACK}:{web.port}/{SECRET}")
    assert sent("apprise=HOOK", notice_of(session_report(red(HOSTILE)))) == [
        "notice sent: apprise (json, xml)"
    ]
    [data] = [asked.json for asked in web.asked if asked.body.startswith(b"{")]
    assert len(web.asked) == 2
    assert data["type"] == "failure"
    assert "-9.9 %" in data["message"]
    assert "@everyone" not in data["message"]  # services take it for a mention
    assert data["title"].startswith("dlperf lab: ")


def test_apprise_attaches_the_page_where_a_service_takes_files(web, monkeypatch):
    monkeypatch.setenv("HOOK", f"json://{LOOPBACK}:{web.port}/{SECRET}")
    assert sent("apprise+page=HOOK", notice_of(session_report(red()))) == [
        "notice sent: apprise (json)"
    ]
    [data] = [asked.json for asked in web.asked]
    [page] = data["attachments"]
    assert (page["filename"], page["mimetype"]) == ("results.html", "text/html")
    assert CASE in base64.b64decode(page["base64"]).decode()


@pytest.mark.parametrize(
    "address",
    [
        f"https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/{'x' * 24}",
        (
            f"https://prod-1.west.logic.azure.com:443/workflows/{'6' * 32}/triggers/manual/paths"
            "/invoke?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=KODuebWbDGYFr0z0eu"
        ),
        f"mmosts://chat.example.org/{'x' * 26}",
        "mailtos://user:p%40ss@smtp.example.org?from=dlperf@example.org&to=a@x.org,b@x.org",
        "mailto://localhost?from=dlperf@example.org&to=team@example.org",
    ],
    ids=["slack", "teams", "mattermost", "mail", "mail without a password"],
)
def test_apprise_knows_the_addresses_of_the_documents(monkeypatch, address):
    monkeypatch.setattr("apprise.Apprise.notify", lambda *_, **__: True)
    monkeypatch.setenv("HOOK", address)
    [line] = sent("apprise=HOOK", notice_of(session_report(red())))
    assert line.startswith("notice sent: apprise (")


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (f"nosuch://h/{SECRET}", "Apprise does not know address 1"),
        (f"json://{LOOPBACK}:1/{SECRET}", "a service could not be reached, or refused"),
        (SECRET, "HOOK holds no addresses of Apprise"),
    ],
)
def test_a_fault_of_apprise_shows_no_address(
    addresses,
    words,
    monkeypatch,
    capfd,
    caplog,
):
    monkeypatch.setenv("HOOK", addresses)
    [line] = sent("apprise=HOOK", notice_of(session_report(red())))
    assert words in line
    assert SECRET not in f"{line}{capfd.readouterr()}{caplog.text}"


def test_apprise_may_not_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("HOOK", f"json://h/{SECRET}")
    [line] = sent("apprise=HOOK", notice_of(session_report(red())))
    assert line.endswith(": Apprise is not installed: pip install 'pytest-dlperf[notify]'")


# -------------------------------------------------------------------- whom, and where


def test_an_address_may_be_in_a_variable_or_a_file(web, tmp_path, monkeypatch):
    (tmp_path / "hook").write_text(f"{address(web)}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for text in ("json=HOOK", "json=@hook"):
        assert sent(text, notice_of(session_report(red())))[0].startswith("notice sent"), text
    assert len(web.asked) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("NO_SUCH_HOOK", "NO_SUCH_HOOK is not set"),
        ("@no-such-file", "cannot be read"),
        ("LOOSE", "https://"),
        ("SPACED", "https://"),
        ("INSIDE", "https://"),
    ],
)
def test_what_is_missing_costs_the_notice_only(value, words, monkeypatch):
    monkeypatch.setenv("LOOSE", f"file:///etc/{SECRET}")
    monkeypatch.setenv("SPACED", f"https://h/{SECRET} x")
    monkeypatch.setenv("INSIDE", f"https://user:{SECRET}@h/")
    [line] = sent(f"json={value}", notice_of(session_report(red())))
    assert line.startswith("no notice was sent by json: --dlperf-notify json: ")
    assert words in line
    assert SECRET not in line


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("json=NO_SUCH_HOOK", "DLPERF_NOTIFY", "the variable NO_SUCH_HOOK is not set; no notice"),
        ("apprise=LOOSE", "--dlperf-notify", "LOOSE holds no addresses of"),
        ("gitlab=nightly github", "--dlperf-notify", ""),
    ],
)
def test_what_would_cost_a_notice_is_known_at_the_start(text, place, words, monkeypatch):
    monkeypatch.setenv("LOOSE", SECRET)
    found = [one.warning() for one in targets(OptionText(text, place, Path()))]
    said = "".join(filter(None, found))
    assert words in said
    assert bool(said) == bool(words)
    assert SECRET not in said


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (f"slak=https://h/{SECRET}", "--dlperf-notify", "'slak'"),
        (f"https://hooks.example/{SECRET}?a=b", "--dlperf-notify", "apprise"),
        ("json", "DLPERF_NOTIFY", "json=WEBHOOK"),
        (f"apprise=tgram://{SECRET}/1", "--dlperf-notify", "name the variable"),
        (f"json=https://h/{SECRET}", "ini key dlperf_notify", "name the variable"),
        ("json=$HOOK", "DLPERF_NOTIFY", "name the variable"),
        ("github=a/b", "--dlperf-notify", "letters"),
    ],
)
def test_a_mistake_is_told_before_anything_runs_without_its_secret(text, place, words):
    with pytest.raises(UsageError) as error:
        targets(OptionText(text, place, Path()))
    assert str(error.value).startswith(place)
    assert words in str(error.value)
    assert SECRET not in str(error.value)


def test_several_have_blanks_between_them():
    text = "ping=A_HOOK  apprise+page=MAIL\ngithub json=@a file github=nightly"
    found = targets(OptionText(text, "DLPERF_NOTIFY", Path()))
    assert [(one.kind, one.value) for one in found] == [
        ("ping", "A_HOOK"), ("apprise+page", "MAIL"), ("github", ""),
        ("json", "@a file"), ("github", "nightly"),
    ]  # fmt: skip


def test_a_payload_is_json_whatever_a_log_holds(web):
    payload(web, red("half of a character: \ud800"))


def test_more_went_wrong_than_the_cases(web):
    notice = notice_of(
        session_report(green()), faults=["the page could not be written to <out>: disk full"]
    )
    assert notice.is_red
    assert notice.subject.startswith("dlperf lab: the page could not be written to <out>; ")
    sent("json=HOOK", notice)
    assert "disk full" in web.asked[0].json["text"]
    assert "disk full" in web.asked[0].json["markdown"]
    many = notice_of(session_report(green()), faults=[f"{n}: {'x' * 900}" for n in range(60)])
    assert "and 57 more" in many.text
    assert len(many.text) < LONGEST_TEXT

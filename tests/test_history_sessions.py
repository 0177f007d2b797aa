"""What sessions put into the history, whichever way they run and end."""

import sys
from datetime import datetime, timedelta

import pytest
from histories import case_result, rows_of, session
from nights import Nights
from sessions import in_background
from trainers import CASES, TinySystem

from pytest_dlperf.history.store import History

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

SELECTED = ("-k", "tiny and throughput", "--dlperf-create-baselines", "--dlperf-repeats", "2")
SINGLE = "tiny-mlp-fp32-b4-1n1g"
MEMORY = """\
  peak_memory:
    record: 'max allocated: (?P<value>[0-9.]+) MB'
    over: run
    unit: MB
    better: lower
    tolerance_percent: 2
"""
PLACE = ".dlperf/history.sqlite3"


def days_ago(number):
    """When a session began on a day before today's."""
    begun = datetime.now().astimezone() - timedelta(days=number)
    return begun.isoformat(timespec="seconds")


def test_a_session_is_kept_with_all_that_it_measured(suite, workers):
    TinySystem(suite)
    _, results = suite.judge(*SELECTED, "-k", "tiny", *workers, cluster="local")

    file = suite.path / PLACE
    assert rows_of(
        file, "SELECT uid, cluster, estimator, started, ended, interrupted FROM sessions"
    ) == [(results["session"], "local", "steady", results["started"], results["ended"], 0)]
    kept = rows_of(
        file,
        "SELECT name, metric, unit, median, verdict FROM measurements "
        "JOIN cases ON cases.id = case_id ORDER BY name, metric",
    )
    assert kept == sorted(
        (case["id"], name, found["unit"], found["median"], found["verdict"])
        for case in results["cases"]
        for name, found in case["metrics"].items()
        if found["median"] is not None
    )
    assert {name for name, *_ in kept} == set(CASES)
    assert {metric for _, metric, *_ in kept} >= {"throughput", "speedup"}
    counted = "SELECT sum(counted), sum(broken) FROM measurements WHERE metric = 'throughput'"
    assert rows_of(file, counted) == [(6, 0)]
    assert rows_of(file, "SELECT count(*) FROM fingerprints")[0] >= (1,)


def test_a_failed_run_is_kept_as_what_it_is(suite):
    tiny = TinySystem(suite)
    tiny.behave("0.01 die-at-5")
    suite.run(*SELECTED, "-k", "tiny and throughput and 1n1g")
    file = suite.path / PLACE
    query = "SELECT median, verdict, run_values, broken FROM measurements"
    assert rows_of(file, f"{query} WHERE metric = 'throughput'") == [(None, "failed", "[]", 1)]


def test_logs_that_were_judged_are_told_from_launches(suite, command):
    nights = Nights(suite)
    nights.accept(nights.numbers("before"))
    for _ in range(2):
        suite.run(*nights.usual("tonight"))
    file = suite.path / PLACE
    assert rows_of(file, "SELECT count(*) FROM sessions") == [(2,)]
    # Judged twice, measured once.
    shown = command("history", "show", SINGLE)
    shown.stdout.fnmatch_lines(["* last, 1 session *"])


def test_the_place_can_be_chosen(suite):
    TinySystem(suite, topologies=["1n1g"])
    suite.run(*SELECTED, "--dlperf-history", "kept/here.sqlite3")
    query = "SELECT counted FROM measurements WHERE metric = 'throughput'"
    assert rows_of(suite.path / "kept" / "here.sqlite3", query) == [(2,)]
    assert not (suite.path / PLACE).exists()


def test_none_keeps_nothing(suite):
    TinySystem(suite, topologies=["1n1g"])
    suite.run(*SELECTED, "--dlperf-history", "none")
    assert not list(suite.path.rglob("*.sqlite3"))


def test_a_session_that_measures_nothing_makes_no_database(suite):
    TinySystem(suite)
    suite.run("-k", "nothing_of_that")
    assert not list(suite.path.rglob("*.sqlite3"))


@pytest.mark.ci
def test_two_sessions_at_once_are_both_kept(suite):
    TinySystem(suite)
    with in_background(suite, *SELECTED) as one, in_background(suite, *SELECTED) as two:
        one.result()
        two.result()
    file = suite.path / PLACE
    assert rows_of(file, "SELECT count(*) FROM sessions") == [(2,)]
    query = "SELECT sum(counted) FROM measurements WHERE metric = 'throughput'"
    assert rows_of(file, query) == [(12,)]
    assert "history could not be" not in one.output + two.output


def test_a_database_that_cannot_be_used_is_told_and_changes_no_verdict(suite):
    TinySystem(suite, topologies=["1n1g"])
    file = suite.path / PLACE
    file.parent.mkdir()
    file.write_text("no database at all", encoding="utf-8")
    result = suite.run(*SELECTED)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["the history could not be written: *history.sqlite3 is not a database; *"]
    )
    assert file.read_text(encoding="utf-8") == "no database at all"


def test_the_plugin_imports_no_database_for_a_session_that_measures_nothing(suite):
    suite.pytester.makeconftest(
        "import sys\ndef pytest_unconfigure():\n    print('SQLITE', 'sqlite3' in sys.modules)\n"
    )
    # A start of its own: a fork has what the tests have imported.
    command = [sys.executable, "-m", "pytest", "bench_tests", "--collect-only", "-q"]
    suite.pytester.run(*command).stdout.fnmatch_lines(["SQLITE False"])


def test_what_did_not_pass_is_dated_by_the_nights_before(suite, workers):
    nights = Nights(suite, topologies=["1n1g"])
    nights.accept(nights.numbers("before"))
    begun = [days_ago(3), days_ago(2), days_ago(1)]
    with History.open(suite.path / PLACE) as history:
        for number, (started, level) in enumerate(zip(begun, (400.0, 361.0, 359.0), strict=True)):
            result = case_result(SINGLE, [level, level + 1, level + 2], logs_digest=f"{number}")
            commit = {"commit": f"c{number}"}
            history.add(session(number, [result], started=started, environment=commit))
    arguments = nights.usual("tonight", of_1n1g=0.9)
    ended, results = suite.judge(*arguments, *workers, cluster="local")

    (case,) = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "regressed"
    told = case["explanations"]["throughput"]
    assert (told["since"]["at"], told["since"]["commit"]) == (begun[1], "c1")
    assert (told["last_good"]["at"], told["last_good"]["median"]) == (begun[0], 401.0)
    assert (told["days"], told["days_at_level"]) == (3, 3)
    # The worker's own message has both nights.
    ended.stdout.fnmatch_lines([f"  since *{begun[1][:10]}*", f"  last good *{begun[0][:10]}*"])

    ended, results = suite.judge(*nights.usual("again"), *workers, cluster="local")
    (again,) = results["cases"]
    assert again["metrics"]["throughput"]["verdict"] == "pass"
    assert again["explanations"]["throughput"]["red_since"] is not None


def test_a_history_that_cannot_be_read_costs_an_explanation_and_no_verdict(suite, workers):
    nights = Nights(suite, topologies=["1n1g"])
    nights.accept(nights.numbers("before"))
    file = suite.path / PLACE
    file.parent.mkdir()
    file.write_text("no database at all", encoding="utf-8")
    arguments = nights.usual("tonight", of_1n1g=0.9)
    result, results = suite.judge(*arguments, *workers, cluster="local")

    (case,) = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "regressed"
    assert case["explanations"] == {}
    told = [line for line in result.outlines if line.startswith("since when and what differs")]
    assert [line for line in told if "is not a database" in line] == told
    assert len(told) == 1


def test_the_next_good_night_says_that_the_case_passes_again(suite):
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("accepted"))

    def night(name, level=1.0):
        arguments = nights.usual(name, of_1n1g=level)
        return suite.run(*arguments, "--dlperf-history", "history.sqlite3")

    night("first")
    night("slow", 0.7).stdout.fnmatch_lines(["regressed -* (new): throughput*"])

    green = night("good")
    assert green.ret == 0
    green.stdout.fnmatch_lines(
        ["the only case passes again", "passes again, was red since *: tiny-mlp-fp32-b4-1n1g"]
    )
    night("as good").stdout.no_fnmatch_line("*passes again*")

"""``pytest-dlperf history note``: a fault that is known is shown as such, and told once."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import pytest
import results_makers as make
from histories import CASE, night, rows_of, session
from msgspec.structs import replace
from nights import Nights
from test_explaining import BAD, GOOD, explained, kept
from test_notice_due import FIRST, SECOND, lost

from pytest_dlperf.command.main import main
from pytest_dlperf.config.values import NotifyOn
from pytest_dlperf.history.store import History
from pytest_dlperf.history.triage import make_note, note_on
from pytest_dlperf.model.judgement import Explanation, Note, Verdict
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.notices.due import is_due
from pytest_dlperf.report.session import session_report
from pytest_dlperf.report.words import onset, subject
from pytest_dlperf.results.file import read_results

pytestmark = pytest.mark.in_process

SOON = (date.today() + timedelta(days=9)).isoformat()  # noqa: DTZ011 - as the command has it


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"):
        monkeypatch.setenv(name, "ana@example.org" if "EMAIL" in name else "Ana Diaz")
    return tmp_path / "h.sqlite3"


def note(file, *arguments):
    return main(["history", "note", *arguments, "--history", str(file)])


def noted(file, said="#812", *, day, until):
    """Have a note been made on a night, before its session."""
    with History.open(file) as history:
        make_note(
            history,
            [CASE],
            cluster="local",
            metric=None,
            said=said,
            until=date.fromisoformat(night(until)[:10]),
            by="Ana Diaz <ana@example.org>",
            at=night(day).replace("T02", "T01"),
        )


def text_on(file):
    with History.read(file) as history:
        found = note_on(history, cluster="local", case_id=CASE, metric="throughput")
    return found.text if found is not None else None


# -------------------------------------------------------------------------- what is kept


def test_a_note_is_kept_with_who_and_when_and_the_last_one_counts(file, capsys):
    kept(file, {0: GOOD, 1: BAD})
    assert note(file, "tiny-*-1n1g", "known,\n #811", "--until", SOON) == 0
    assert capsys.readouterr().out == f"noted until {SOON}: 1 case of cluster local: {CASE}\n"
    assert note(file, CASE, "the new fabric, #812", "--until", SOON, "--metric=throughput") == 0

    with History.read(file) as history:
        found = note_on(history, cluster="local", case_id=CASE, metric="throughput")
        other = note_on(history, cluster="local", case_id=CASE, metric="speedup")
        assert note_on(history, cluster="lab", case_id=CASE, metric="throughput") is None
    assert (found.text, found.until.isoformat()) == ("the new fabric, #812", SOON)
    assert found.by == "Ana Diaz <ana@example.org>"
    assert found.at[:10] == date.today().isoformat()  # noqa: DTZ011 - as the command has it
    assert other.text == "known, #811"
    capsys.readouterr()
    assert main(["history", "show", "--history", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"until {SOON}: the new fabric, #812" in shown


def test_what_is_removed_stays_in_the_history(file):
    kept(file, {0: GOOD, 1: BAD})
    note(file, CASE, "#812", "--until", SOON)
    assert note(file, CASE, "--remove") == 0
    assert text_on(file) is None
    assert rows_of(file, "SELECT text, made_by IS NULL FROM notes ORDER BY id") == [
        ("#812", 0),
        (None, 0),
    ]


def test_two_writers_at_once_both_write(file):
    kept(file, {0: GOOD})

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda number: noted(file, f"#{number}", day=1, until=2), range(8)))
    assert len(rows_of(file, "SELECT DISTINCT text FROM notes")) == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tiny-mlp-fp32-b4-1n3g", "x", "--until", SOON), "the history has no case 'tiny-mlp-fp32"),
        ((CASE, " ", "--until", SOON), "argument TEXT: it is empty"),
        ((CASE, "x" * 201, "--until", SOON), "argument TEXT: it has 201 characters"),
        ((CASE, "--until", SOON), "the text is missing"),
        ((CASE, "x"), "--until is missing"),
        ((CASE, "x", "--until", "2020-01-01"), "argument --until: 2020-01-01 is not a day to come"),
        ((CASE, "x", "--until", "2026-13-01"), "'2026-13-01' is not a day such as 2026-12-01"),
        ((CASE, "x", "--until", "tomorrow"), "'tomorrow' is not a day such as 2026-12-01"),
        ((CASE, "x", "--until", SOON, "--metric", "loss"), "the history has no 'loss' of "),
        ((CASE, "x", "--until", SOON, "--cluster", "b"), "the history has no cluster 'b'"),
        ((CASE, "--remove"), f"there is no note on {CASE!r}"),
        ((CASE, "x", "--remove"), "--remove takes neither a text nor --until"),
    ],
)
def test_a_note_that_cannot_be_meant_is_misuse_and_changes_nothing(file, capsys, arguments, said):
    kept(file, {0: GOOD})
    try:
        code = note(file, *arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert rows_of(file, "SELECT * FROM notes") == []


def test_a_case_of_two_clusters_needs_its_cluster(file, capsys):
    kept(file, {0: GOOD})
    kept(file, {1: GOOD}, cluster="lab")
    assert note(file, CASE, "x", "--until", SOON) == 2
    assert "name one by --cluster: lab, local" in capsys.readouterr().err
    assert note(file, CASE, "x", "--until", SOON, "--cluster", "local") == 0
    assert text_on(file) == "x"


# --------------------------------------------------------------------- what it explains


def test_a_fault_is_known_until_the_day_of_its_note(file):
    kept(file, {0: GOOD, 1: BAD, 2: BAD})
    noted(file, day=3, until=5)
    for day, is_known in ((3, True), (4, True), (5, False), (6, False)):
        found = explained(file, day)
        assert found.note is not None
        judgement = make.judged(Verdict.REGRESSED, measured=BAD, difference_percent=-5.0)
        assert str(subject(judgement, found, night(day))).endswith(", known") is is_known
        said = {label: str(text) for label, text in onset(found, night(day))}
        over = "" if is_known else " (which is over)"
        assert said["noted"] == f"by Ana Diaz on Sunday 2026-01-04 until 2026-01-06{over}: #812"


def test_a_note_that_is_over_says_nothing_of_a_later_fault(file):
    kept(file, {0: GOOD, 1: GOOD, 2: GOOD, 3: GOOD, 4: BAD})
    noted(file, day=1, until=3)
    found = explained(file, 5)
    assert found.note is None


def test_a_pass_has_no_note(file):
    kept(file, {0: GOOD})
    noted(file, day=1, until=9)
    passed = make.judged(Verdict.PASS, measured=GOOD, difference_percent=0.0)
    assert explained(file, 2, passed) is None


# ------------------------------------------------------------------------ whom it spares


def of(number, *losses, noted_on=None, until=9):
    """A night on which the cases have lost so much; the first is noted from a night on."""
    cases = [lost(loss, case_id) for loss, case_id in zip(losses, (FIRST, SECOND), strict=False)]
    results = session(number, cases)
    if noted_on is None or number < noted_on:
        return results
    note = Note(
        text="#812",
        until=date.fromisoformat(night(until)[:10]),
        at=night(noted_on).replace("T02", "T01"),
    )
    first = replace(results.cases[0], explanations={"throughput": Explanation(note=note)})
    return replace(results, cases=(first, *results.cases[1:]))


@pytest.mark.parametrize(
    ("losses", "on_failure", "on_change"),
    [
        ([(9,), (9,)], False, False),  # told on the night before the note
        ([(9,), (0,), (9,)], False, False),  # comes and goes
        ([(9,), (9,), (20,)], False, False),  # grows
        ([(9, 0), (9, 0), (9, 9)], True, True),  # another case
    ],
)
def test_a_known_fault_is_not_told(tmp_path, losses, *, on_failure, on_change):
    file = tmp_path / "h.sqlite3"
    nights = [of(number, *each, noted_on=1) for number, each in enumerate(losses)]
    with History.open(file) as history:
        for results in nights:
            history.add(results)
    last = nights[-1]
    assert is_due(last, NotifyOn.FAILURE, file, is_bad=False) is on_failure
    assert is_due(last, NotifyOn.CHANGE, file, is_bad=False) is on_change
    assert is_due(last, NotifyOn.ALWAYS, file, is_bad=False)
    lost_one = replace(last, cases=(replace(last.cases[0], is_whole=False), *last.cases[1:]))
    assert is_due(lost_one, NotifyOn.FAILURE, file, is_bad=False)


def test_on_its_date_a_fault_is_told_again_and_then_as_any_other(tmp_path):
    file = tmp_path / "h.sqlite3"
    told = []
    for number in range(6):
        results = of(number, 9, noted_on=1, until=4)
        with History.open(file) as history:
            history.add(results)
        due = [is_due(results, when, file, is_bad=False) for when in NotifyOn]
        told.append(dict(zip(NotifyOn, due, strict=True)))
    assert [due[NotifyOn.CHANGE] for due in told] == [True, False, False, False, True, False]
    assert [due[NotifyOn.FAILURE] for due in told] == [True, False, False, False, True, True]


# ---------------------------------------------------------------------------- a session


@pytest.mark.slow
def test_a_session_shows_the_note_and_stays_red(suite):
    nights = Nights(suite)
    nights.accept(nights.numbers("first"))
    suite.judge(*nights.usual("first"), cluster="local")
    suite.judge(*nights.usual("second", of_1n1g=0.8, of_1n2g=0.8), cluster="local")
    history = suite.path / ".dlperf" / "history.sqlite3"
    text = "<b>known</b>, #812"
    assert main(["history", "note", CASE, text, "--until", SOON, "--history", str(history)]) == 0

    result, results = suite.judge(
        *nights.usual("third", of_1n1g=0.8, of_1n2g=0.8), "--dlperf-html", "p.html",
        "--dlperf-markdown", "m.md", cluster="local",
    )  # fmt: skip

    assert result.ret == 1
    [case] = [case for case in results["cases"] if case["id"] == CASE]
    assert case["metrics"]["throughput"]["verdict"] == "regressed"
    assert case["explanations"]["throughput"]["note"]["text"] == text
    result.stdout.fnmatch_lines(["regressed *, known: throughput*", f"*until {SOON}: {text}"])
    page, markdown = ((suite.path / name).read_text() for name in ("p.html", "m.md"))
    assert "&lt;b&gt;known&lt;/b&gt;, #812" in page
    assert "#812" in markdown
    assert "<b>known</b>" not in page
    assert "<b>known</b>" not in re.sub(r"`[^`]*`", "", markdown)
    notice = notice_of(session_report(read_results(suite.path / "results.json")))
    assert f"until {SOON}: {text}" in notice.text
    assert "got slower" in notice.subject
    assert notice.is_red

"""Reports of other plugins, and what becomes of a report that fails."""

import pytest
from nights import Nights

from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.results import Results
from pytest_dlperf.report.reports import Note, Report, Reports, file_report
from pytest_dlperf.report.session import session_report

SESSION = session_report(
    Results(
        session="one", cluster="c", estimator=Estimator.STEADY, started="2026-01-01T00:00:00+00:00"
    )
)


def text(session):
    return f"{session.results.cluster}: {session.sentence}"


def failing(error):
    """Tells something, then fails."""

    def write(session):
        yield Note(f"begun with {session.results.cluster}")
        raise error

    return write


@pytest.fixture
def nights(suite):
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


def published(*reports, any_test=True):
    """Publish results without a case."""
    notes = []
    Reports(reports, notes).write(SESSION, any_test=any_test)
    return notes


@pytest.mark.parametrize(
    ("error", "words", "is_required"),
    [
        (PermissionError(13, "Not allowed", "/a/file"), ["/a/file", "Not allowed"], True),
        (KeyError("nothing"), ["KeyError", "nothing", "test_reports.py, line"], False),
    ],
    ids=["disk", "fault"],
)
def test_a_report_that_fails_costs_no_other(tmp_path, error, words, is_required):
    file = tmp_path / "it.txt"

    begun, failed, written = published(
        Report("odd one", failing(error), is_required=is_required), file_report("text", file, text)
    )

    assert begun == Note("begun with c")
    assert failed.is_bad is is_required
    assert all(word in failed.text for word in ("odd one", *words))
    assert written == Note(f"text: {file}")
    assert file.read_text(encoding="utf-8") == "c: nothing was measured"


def test_without_a_test_only_named_files_are_written(tmp_path):
    named = file_report("text", tmp_path / "it.txt", text)
    [note] = published(Report("odd one", failing(OSError())), named, any_test=False)
    assert note.text.startswith("text: ")


def test_a_fault_at_each_test_is_noted_once():
    notes = []
    reports = Reports([], notes)
    for _ in range(3):
        with reports.faults_noted("summary"):
            raise KeyError("throughput")
    [note] = notes
    assert note.is_bad


CONFTEST = """
from pathlib import Path

from pytest_dlperf.report.reports import file_report


def medians(session):
    return "".join(
        f"{case.case.id},{name},{known.median}\\n"
        for case in session.results.cases
        for name, known in case.metrics().items()
    )


def pytest_addoption(parser):
    parser.addoption("--csv", type=Path, metavar="FILE", help="write medians to FILE")


def pytest_dlperf_reports(config):
    return [file_report("CSV file", config.option.csv, medians)] if config.option.csv else []
"""


def test_a_conftest_adds_a_report_with_an_option_of_its_own(suite, nights, workers):
    suite.pytester.makeconftest(CONFTEST)

    result = suite.run(*nights.usual("now"), "--csv", "new/it.csv", *workers)

    result.stdout.fnmatch_lines(["CSV file: new/it.csv, in a new folder"])
    rows = (suite.path / "new" / "it.csv").read_text(encoding="utf-8").splitlines()
    measured = [row.split(",")[:2] for row in rows if not row.endswith(",None")]
    assert [name for case_id, name in measured if case_id == "tiny-mlp-fp32-b4-1n2g"] == [
        "throughput", "speedup", "throughput_per_device",
    ]  # fmt: skip
    assert result.ret == 0


def test_reports_of_a_session_without_a_case_say_that_nothing_was_measured(nights):
    """Neither that it was interrupted, nor that anything is well."""
    suite = nights.suite

    result = suite.run(
        "-k", "tiiny", "--dlperf-json", "it.json", "--dlperf-markdown", "it.md",
        "--dlperf-html", "it.html", "--dlperf-tables", "tables",
    )  # fmt: skip

    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        ["results: *it.json", "Markdown page: *it.md", "page: *it.html", "no tables: nothing was *"]
    )
    nothing = "othing was measured"
    for name in ("it.md", "it.html"):
        text = (suite.path / name).read_text(encoding="utf-8")
        assert nothing in text
        assert "interrupted" not in text.partition("<main")[2]
    assert '"interrupted": false' in (suite.path / "it.json").read_text(encoding="utf-8")
    assert not (suite.path / "tables").exists()


def test_a_report_that_cannot_be_written_is_told_also_where_no_test_runs(suite):
    suite.pytester.makeconftest(
        "import os\n\ndef pytest_collection_finish():\n    os.mkdir('results.json')\n"
    )
    result = suite.run("-k", "tiiny", "--dlperf-json", "results.json")
    result.stdout.fnmatch_lines(["the results could not be written to *results.json: *"])
    assert result.ret != 0


def test_a_dry_run_leaves_the_reports_of_the_last_session_alone(nights):
    suite = nights.suite
    suite.run(*nights.usual("now"), "--dlperf-json", "it.json")
    before = (suite.path / "it.json").read_bytes()

    result = suite.run("-k", "tiny", "--dlperf-dry-run", "--dlperf-json", "it.json")

    assert result.ret == 0
    assert (suite.path / "it.json").read_bytes() == before

"""Reports of other plugins, and what becomes of a report that fails."""

import pytest
from nights import Nights

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report.report import FileReport, Line, Note, Report, Reports, TestStatus
from pytest_dlperf.report.session import session_report

NIGHT = session_report(
    Results(
        session="one", cluster="c", estimator=Estimator.STEADY, started="2026-01-01T00:00:00+00:00"
    )
)


class Text(FileReport):
    """A report in a file."""

    name = "text"

    def text(self, night):
        """Return the cluster's name, and what the session has come to."""
        return f"{night.results.cluster}: {night.sentence}"


class Failing(Report):
    """A report with a fault."""

    name = "odd one"
    needs_tests = False

    def __init__(self, error, *, is_required=True):
        """Take the error to raise."""
        self._error = error
        self.is_required = is_required

    def write(self, night):
        """Tell something first."""
        yield Note(f"begun with {night.results.cluster}")
        raise self._error

    def summary(self, night, notes):
        """Print something first."""
        yield Line(f"begun after {len(notes)} notes of {night.results.cluster}")
        raise self._error


@pytest.fixture
def nights(suite):
    nights = Nights(suite)
    nights.accept(nights.numbers("accepted"))
    return nights


def published(*reports, any_report=True):
    """Publish results without a case."""
    notes = []
    Reports(reports, notes).write(NIGHT, any_report=any_report)
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

    begun, failed, written = published(Failing(error, is_required=is_required), Text(file))

    assert begun == Note("begun with c")
    assert failed.is_bad is is_required
    assert all(word in failed.text for word in ("odd one", *words))
    assert written == Note(f"text: {file}")
    assert file.read_text(encoding="utf-8") == "c: nothing was measured"


def test_all_reports_get_one_night():
    given = []

    class Asking(Report):
        needs_tests = False

        def write(self, night):
            given.append(night)
            return [Note(str(night.sentence))]

        def summary(self, night, notes):
            given.append(night)
            return [Line(note.text) for note in notes]

    notes = []
    reports = Reports([Asking(), Asking()], notes)
    reports.write(NIGHT, any_report=True)
    list(reports.summary(NIGHT))
    assert len(given) == 4
    assert all(night is NIGHT for night in given)
    assert NIGHT.bad is NIGHT.bad  # made once


def test_without_a_test_only_named_files_are_written(tmp_path):
    class Informing(Report):
        def write(self, night):
            raise AssertionError(night)

    [note] = published(Informing(), Text(tmp_path / "it.txt"), any_report=False)
    assert note.text.startswith("text: ")


def test_a_summary_that_fails_costs_no_other():
    class Closing(Report):
        def summary(self, night, notes):
            return [Line(f"{night.results.cluster}: {len(notes)}")]

    reports = Reports([Failing(ValueError("odd")), Closing()], [Note("a"), Note("b")])
    begun, closed, failed = reports.summary(NIGHT)
    assert begun.text == "begun after 2 notes of c"
    assert closed.text == "c: 2"
    assert "odd one" in failed.text


def test_a_fault_at_each_test_is_noted_once():
    class Odd(Report):
        def properties(self, result, metric):
            raise KeyError(result.case.id, metric)

        def status(self, result, metric, given):
            raise KeyError(result.case.id, metric, given)

    class Team(Report):
        def properties(self, result, metric):
            return [("team", f"{result.case.model} {metric}")]

    notes = []
    reports = Reports([Odd(), Team()], notes)
    result = CaseResult(case=Case.from_id("a-b-fp32-b1-1n1g"))
    given = TestStatus("passed", ".", "PASSED")
    for _ in range(3):
        assert reports.properties(result, "throughput") == [("team", "b throughput")]
        assert reports.status(result, "throughput", given) is given
    assert len(notes) == 2
    assert all(note.is_bad for note in notes)


CONFTEST = '''
from pathlib import Path

from pytest_dlperf.report.report import FileReport, Line, Report


class Csv(FileReport):
    """Medians, for a spreadsheet."""

    name = "CSV file"

    def text(self, night):
        return "".join(
            f"{case.case.id},{name},{known.median}\\n"
            for case in night.results.cases
            for name, known in case.metrics().items()
        )

    def properties(self, result, metric):
        yield "team", "speed"

    def summary(self, night, notes):
        yield Line(f"in short: {night.sentence}")
        yield Line(f"CSV of {len(night.results.cases)} cases after {len(notes)} notes", ("bold",))


def pytest_addoption(parser):
    parser.addoption("--csv", type=Path, metavar="FILE", help="write medians to FILE")


def pytest_dlperf_reports(config):
    return [Csv(config.option.csv)] if config.option.csv else []
'''


def test_a_conftest_adds_a_report_with_an_option_of_its_own(suite, nights, workers):
    suite.pytester.makeconftest(CONFTEST)

    result = suite.run(
        *nights.usual("tonight"), "--csv", "new/it.csv", "--junitxml", "junit.xml", *workers
    )

    result.stdout.fnmatch_lines(
        [
            "CSV file: new/it.csv, in a new folder",
            "in short: both cases pass",
            "CSV of 2 cases after *",
        ]
    )
    rows = (suite.path / "new" / "it.csv").read_text(encoding="utf-8").splitlines()
    measured = [row.split(",")[:2] for row in rows if not row.endswith(",None")]
    assert [name for case_id, name in measured if case_id == "tiny-mlp-fp32-b4-1n2g"] == [
        "throughput", "speedup", "throughput_per_device",
    ]  # fmt: skip
    assert 'name="team" value="speed"' in (suite.path / "junit.xml").read_text(encoding="utf-8")
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
    suite.run(*nights.usual("tonight"), "--dlperf-json", "it.json")
    before = (suite.path / "it.json").read_bytes()

    result = suite.run("-k", "tiny", "--dlperf-dry-run", "--dlperf-json", "it.json")

    assert result.ret == 0
    assert (suite.path / "it.json").read_bytes() == before

"""Options: declared once, of all places the first that speaks is heard, mistakes name the place."""

import re
from pathlib import Path

import pytest

from pytest_dlperf.config.options import OPTIONS, read_settings
from pytest_dlperf.config.values import ControlArm
from pytest_dlperf.model.errors import UsageError

ROOT = Path(__file__).parent.parent
REPORTS = tuple(name for name, option in OPTIONS.items() if option.names_a_report)
NOTHING = ("-k", "throughput and arcface and 1n1g")
"""Selects one case, which is skipped: whatever a session is to write, it writes."""


class Project:
    """A folder with an ini file, in which pytest reads its options."""

    def __init__(self, pytester):
        self._pytester = pytester
        self.path = pytester.path

    def config(self, *arguments, ini=""):
        self._pytester.makeini(f"[pytest]\n{ini}\n")
        return self._pytester.parseconfig(*arguments)

    def settings(self, *arguments, ini="", environment=None):
        return read_settings(self.config(*arguments, ini=ini), environment or {})

    def refused(self, *arguments, **where):
        with pytest.raises(UsageError) as caught:
            self.settings(*arguments, **where)
        return str(caught.value)


@pytest.fixture
def project(pytester):
    return Project(pytester)


# Where a value comes from


def test_messages_name_options_that_exist():
    texts = [file.read_text(encoding="utf-8") for file in ROOT.glob("pytest_dlperf/**/*.py")]
    named = set(re.findall(r"--dlperf-[a-z]+(?:-[a-z]+)*", "".join(texts)))
    assert named - {option.flag for option in OPTIONS.values()} == set()


def test_the_command_line_comes_before_the_environment_and_the_ini_file(project):
    ini, environment = "dlperf_cluster = ini", {"DLPERF_CLUSTER": "environment"}
    assert project.settings().cluster == "local"
    assert project.settings(ini=ini).cluster == "ini"
    assert project.settings(ini=ini, environment=environment).cluster == "environment"
    given = project.settings("--dlperf-cluster=line", ini=ini, environment=environment)
    assert given.cluster == "line"
    variables = {"DLPERF_HOSTS": "a,b", "DLPERF_LAUNCHER": "ssh"}
    hosts = project.settings(ini="dlperf_hosts = c", environment=variables).hosts
    assert (hosts.text, hosts.place, hosts.folder) == ("a,b", "DLPERF_HOSTS", project.path)
    assert project.settings(environment=variables).launcher == "ssh"


def test_an_environment_variable_without_a_value_says_nothing(project):
    ini = "dlperf_cluster = ini"
    assert project.settings(ini=ini, environment={"DLPERF_CLUSTER": " "}).cluster == "ini"


@pytest.mark.parametrize(
    ("ini", "environment", "arguments", "strict"),
    [
        ("", None, [], False),
        ("dlperf_strict = true", None, [], True),
        ("dlperf_strict = true", "0", [], False),
        ("", "YES", [], True),
        ("", "no", ["--dlperf-strict"], True),
        ("", "", [], False),
    ],
)
def test_a_flag_is_yes_or_no(project, ini, environment, arguments, *, strict):
    variables = {} if environment is None else {"DLPERF_STRICT": environment}
    assert project.settings(*arguments, ini=ini, environment=variables).strict is strict


def test_what_may_be_given_several_times_comes_from_one_place(project):
    ini = "dlperf_logs =\n    a=one\n    a/y+x=two"
    assert [source.places for source in project.settings(ini=ini).log_sources] == ["one", "two"]
    [only] = project.settings("--dlperf-logs", "b/y+x=three", ini=ini).log_sources
    assert (only.of, only.options) == ("b", ("x", "y"))
    assert only.path(only.places) == project.path / "three"


def test_paths_start_where_they_were_written(project, monkeypatch):
    """The ini file's folder, and the user's for the command line and the environment."""
    (project.path / "there").mkdir()
    monkeypatch.chdir(project.path / "there")
    ini = "\n".join(f"{OPTIONS[name].key} = a/report{name}" for name in REPORTS)
    flags = [f"{OPTIONS[name].flag}=a/report{name}" for name in REPORTS]
    for given, folder in (
        (project.settings("--rootdir", str(project.path), ini=ini), project.path),
        (project.settings("--rootdir", str(project.path), *flags), project.path / "there"),
    ):
        for name in REPORTS:
            assert getattr(given, name) == folder / f"a/report{name}"
    named = project.settings("--rootdir=..", environment={"DLPERF_HISTORY": "h"}).history_file
    assert named == project.path / "there" / "h"
    defaults = project.settings("--rootdir", str(project.path))
    assert defaults.history_file == project.path / ".dlperf/history.sqlite3"
    assert defaults.systems_directories == (project.path / "bench_tests/systems",)
    assert defaults.session_dir.parent == project.path / ".dlperf/runs"


def test_two_sessions_of_one_second_have_folders_of_their_own(project, monkeypatch):
    first = project.settings().session_dir
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+", first.name)
    monkeypatch.setattr("os.getpid", lambda: 0)
    assert project.settings().session_dir.name.endswith("-0")


def test_values_are_more_than_text(project):
    given = project.settings(
        *("--dlperf-control=never", "--dlperf-repeats=9"),
        *("--dlperf-ssh=ssh -F 'my conf'", "--dlperf-set=a.b=c d", "--dlperf-hosts=x,y"),
        *("--dlperf-update-baselines", "--dlperf-reason= NCCL \n 2.19 "),
    )
    assert given.control is ControlArm.NEVER
    assert given.repeats == 9
    assert given.ssh_command == ("ssh", "-F", "my conf")
    assert given.launch_settings[0].place == "--dlperf-set a.b"
    assert (given.hosts.text, given.hosts.place) == ("x,y", "--dlperf-hosts")
    assert given.reason == "NCCL 2.19"


@pytest.mark.parametrize("none", ["none", "None", " NONE "])
def test_a_session_may_keep_no_history(project, none):
    assert project.settings("--dlperf-history", none).history_file is None
    assert project.settings(environment={"DLPERF_HISTORY": none}).history_file is None


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(([f"--dlperf-repeats={number}"], "is not an integer ≥ 1 and ≤ 1000")
          for number in ("0", "many", "1001", "9" * 5000)),
        *(([f"--dlperf-wait-limit={number}"], "is not a number of seconds > 0 and ≤ 100000000")
          for number in ("0", "nan", "1e300")),
        *(([f"--dlperf-logs={text}"], f"'{text}' is not of the form SYSTEM[/OPTIONS]=DIR or CASE=")
          for text in ("bert", "bert/=logs", "=logs")),
        (["--dlperf-systems=nowhere"], "--dlperf-systems: there is no folder 'nowhere'"),
        (["--dlperf-cluster="], "--dlperf-cluster is empty; give a value or leave it out"),
        (["--dlperf-history", " "], "--dlperf-history is empty; give a value or leave it out"),
        (["--dlperf-control=nevr"], "unknown value 'nevr'; did you mean 'never'?"),
        (["--dlperf-ssh=ssh 'a"], "cannot be split as a command: No closing quotation"),
        (["--dlperf-history=/dev/null"], "--dlperf-history: '/dev/null' is not a regular file"),
        (["--dlperf-html=there"], "--dlperf-html: 'there' is a folder; name a file"),
        (["--dlperf-html=new/folder/"], "--dlperf-html: 'new/folder/' is a folder; name a file"),
        (["--dlperf-tables=file"], "--dlperf-tables: 'file' is a file; name a folder"),
        (["--dlperf-json=file/x"], "'file/x' cannot be written: {path}/file is not a folder"),
        (["--dlperf-json=" + "x" * 300], "cannot be written: File name too long"),
        (["--dlperf-reason=x"], "--dlperf-reason says why numbers are accepted; give --dlperf-upd"),
        (["--dlperf-update-baselines", "--dlperf-reason=TEXT"], "NCCL"),
        (["--dlperf-update-baselines", "--dlperf-reason=a\x07"], "is not a reason; say in pl"),
        (["--dlperf-metric=throughput,"], "'throughput,' is not a list of metrics; write names"),
        (["--dlperf-dry-run", "--dlperf-logs=a=b"], "with --dlperf-logs nothing is; leave one"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(project, arguments, message):
    (project.path / "there").mkdir()
    (project.path / "file").touch()
    assert message.replace("{path}", str(project.path)) in project.refused(*arguments)


def test_a_mistake_names_the_variable_or_the_ini_key_and_no_secret(project):
    said = project.refused(environment={"DLPERF_STRICT": "perhaps"})
    assert said.startswith("DLPERF_STRICT='perhaps' is neither yes nor no; use one of 1, true")
    assert project.refused(ini="dlperf_repeats = 0").startswith("ini key dlperf_repeats: '0' ")
    assert "secret" not in project.refused("--dlperf-set", "nothing=secret")


# What nobody knows


def test_an_unknown_variable_is_told_with_what_may_be_meant(project):
    environment = {"DLPERF_HOST": "a", "DLPERF_RUN_ID": "1", "DLPERF_HOSTS": "b", "OTHER": "c"}
    [said] = project.settings(environment=environment).unknown_variables
    assert "DLPERF_HOST " in said
    assert "did you mean 'DLPERF_HOSTS'?" in said
    assert project.refused("--dlperf-strict", environment=environment) == said


# In sessions


def test_a_session_warns_of_an_unknown_variable_at_both_ends(suite, monkeypatch):
    monkeypatch.setenv("DLPERF_CLUSTERS", "other")
    result = suite.run(*NOTHING)
    lines = [line for line in result.outlines if "DLPERF_CLUSTERS" in line]
    assert len(lines) == 2
    assert all("did you mean 'DLPERF_CLUSTER'?" in line for line in lines)


def test_all_reports_go_where_they_are_told(suite):
    """Folders that are missing are made; tables are written of what was measured alone."""
    names = ("json", "markdown", "html", "history")
    flags = (f"--dlperf-{name}=a/b/{name}" for name in names)
    suite.run(*NOTHING, *flags)
    assert {file.name for file in (suite.path / "a/b").iterdir()} >= set(names)
    assert not (suite.path / ".dlperf").exists()


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (["--dlperf-json=empty"], pytest.ExitCode.USAGE_ERROR),
        (["-o", "dlperf_json=empty"], pytest.ExitCode.USAGE_ERROR),
        (["-o", "dlperf_json=empty", "-n2"], pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_a_mistake_ends_the_session_before_anything_runs(suite, where, code):
    """Also where it is found when the first test asks for a case; a worker fails to collect it."""
    (suite.path / "empty").mkdir()
    result = suite.run(*where, "-vv")
    assert result.ret == code
    output = result.stdout if "-n2" in where else result.stderr
    output.fnmatch_lines(["*: 'empty' is a folder; name a file"])
    result.stderr.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*SKIPPED*")


# What people read of them


def test_help_tells_every_option(pytester):
    text = " ".join(pytester.runpytest_subprocess("--help").stdout.str().split())
    for option in OPTIONS.values():
        assert option.flag in text
        assert option.typed_only or option.key in text

"""Where the plugin takes part in a session, and where the tests that come with it run."""

import sys

import pytest
from nights import Nights
from trainers import TinySystem

# The tests that come with the package: a folder of system files needs none of its own

SYSTEM = """\
framework: {framework}
model: net
unit: images/s
log: {{name: net, format: dlperf}}
window: {{warmup_steps: 0, measured_steps: 1}}
{more}cases: [{{precision: fp32, batch_per_device: 1, topologies: [1n1g, 1n2g]}}]
"""
LOSS = "metrics: {loss: {record: 'loss=(?P<value>[-+.0-9A-Za-z]+)', sanity: falls}}\n"
ONE = (
    "bench_tests/systems/one.yaml::test_throughput[one-net-fp32-b1-1n1g]",
    "bench_tests/systems/one.yaml::test_throughput[one-net-fp32-b1-1n2g]",
    "bench_tests/systems/one.yaml::test_metric[one-net-fp32-b1-1n1g-loss]",
    "bench_tests/systems/one.yaml::test_metric[one-net-fp32-b1-1n2g-loss]",
    "bench_tests/systems/one.yaml::test_speedup[one-net-fp32-b1-1n2g]",
)
TWO = (
    "bench_tests/systems/two.yaml::test_throughput[two-net-fp32-b1-1n1g]",
    "bench_tests/systems/two.yaml::test_throughput[two-net-fp32-b1-1n2g]",
    "bench_tests/systems/two.yaml::test_speedup[two-net-fp32-b1-1n2g]",
)


@pytest.fixture
def systems(pytester, monkeypatch):
    """The system files of a project that has nothing else."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio -p no:benchmark")
    folder = pytester.mkdir("bench_tests") / "systems"
    folder.mkdir()
    (folder / "one.yaml").write_text(SYSTEM.format(framework="one", more=LOSS), encoding="utf-8")
    (folder / "two.yaml").write_text(SYSTEM.format(framework="two", more=""), encoding="utf-8")
    return folder


def collected(pytester, *arguments):
    result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
    assert result.ret in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    ids = tuple(line for line in result.outlines if "::" in line)
    if ids:
        assert f"{len(ids)}" in next(line for line in result.outlines if "collected" in line)
    return ids


@pytest.mark.usefixtures("systems")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bench_tests"], ONE + TWO),
        (["bench_tests/systems"], ONE + TWO),
        (["bench_tests/systems/two.yaml"], TWO),
        ([ONE[2]], ONE[2:3]),
        (["bench_tests", "-k", "one and speedup"], ONE[4:]),
        (["bench_tests", "-m", "dlperf(framework='two', nodes=1, devices_per_node=2)"], TWO[1:]),
        (["."], ()),
        ([], ()),
    ],
)
def test_what_a_user_names_is_collected_with_ids_that_name_it_again(pytester, arguments, expected):
    """However the project calls its own tests."""
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n"
        "python_files = check_*.py\npython_functions = it_*\ncollect_imported_tests = false\n"
    )
    assert collected(pytester, *arguments) == expected


@pytest.mark.usefixtures("systems")
def test_they_are_found_by_the_name_of_their_package_too(pytester):
    names = {name.partition("::")[2] for name in ONE + TWO}
    ids = collected(pytester, "--pyargs", "pytest_dlperf.suite")
    assert {name.partition("::")[2] for name in ids} == names


@pytest.mark.usefixtures("systems")
@pytest.mark.parametrize(
    "arguments",
    [["tests/nope.py", "--dlperf-strict"], ["bench_tests/systems/one.yaml::test_througput"]],
)
def test_pytest_says_itself_what_it_does_not_find(pytester, arguments):
    result = pytester.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*not found: *"])
    assert "dlperf:" not in result.stdout.str()


def test_a_system_file_outside_of_the_folder_is_collected_with_the_option_that_reads_it(
    pytester, systems
):
    (systems / "one.yaml").rename(pytester.path / "one.yaml")
    assert pytester.runpytest_inprocess("one.yaml").ret == pytest.ExitCode.USAGE_ERROR
    assert len(collected(pytester, "one.yaml", "--dlperf-systems", ".")) == len(ONE)


def test_a_misspelt_option_is_told_with_the_nearest(pytester):
    result = pytester.runpytest_inprocess("--dlperf-cluser", "x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--dlperf-cluser: did you mean --dlperf-cluster?"])
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--dlperf-cluser')")
    assert pytester.runpytest_inprocess("--dlperf-cluser", "x").ret == 5


def test_the_name_of_a_file_is_no_word_of_a_case(pytester, systems):
    (systems / "one.yaml").rename(systems / "two_and_xla.yaml")
    assert len(collected(pytester, "bench_tests", "-k", "two")) == len(TWO)
    assert collected(pytester, "bench_tests", "-k", "xla or yaml") == ()


OWN = "def test_it(dlperf_case): pass\n"


@pytest.mark.usefixtures("systems")
@pytest.mark.parametrize("name", ["test_own.py", "deeper/test_own.py"])
def test_a_test_of_one_s_own_adds_to_them_and_replaces_none(pytester, name):
    file = pytester.path / "bench_tests" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(OWN.replace("test_it", "test_throughput"), encoding="utf-8")
    ids = collected(pytester, "bench_tests")
    own = [one for one in ids if one.startswith(f"bench_tests/{name}::test_throughput[")]
    assert len(own) == 4
    assert {*ids} - {*own} == {*ONE, *TWO}


@pytest.fixture
def repository(pytester, systems):
    """Unit tests beside a suite, and tests of cases in each folder."""
    pytester.mkdir("tests")
    for name in ("test_root", "tests/test_beside", "bench_tests/test_mine"):
        (pytester.path / f"{name}.py").write_text(OWN, encoding="utf-8")
    (pytester.path / "tests/test_unit.py").write_text("def test_unit(): pass\n", encoding="utf-8")
    (systems.parent / "deeper").mkdir()
    (systems.parent / "deeper/test_deep.py").write_text(OWN, encoding="utf-8")


SUITE = {"bench_tests/systems/one.yaml", "bench_tests/systems/two.yaml"}
MINE = {"bench_tests/test_mine.py", "bench_tests/deeper/test_deep.py"}
UNIT, BESIDE = {"tests/test_unit.py"}, {"tests/test_beside.py"}


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("arguments", "testpaths", "files"),
    [
        ([], "", UNIT),
        (["."], "bench_tests", UNIT),
        (["tests"], "", UNIT | BESIDE),
        ([], "tests", UNIT | BESIDE),
        (["bench_tests"], "tests", MINE | SUITE),
        ([], "tests bench_tests", UNIT | BESIDE | MINE | SUITE),
        ([".", "bench_tests/"], "", UNIT | MINE | SUITE),
        ([".", "bench_tests/systems/one.yaml"], "", UNIT | {"bench_tests/systems/one.yaml"}),
        (["bench_tests", "bench_tests/systems", ONE[0]], "", MINE | SUITE),
        (["bench_tests/deeper"], "", {"bench_tests/deeper/test_deep.py"}),
        (["bench_tests/test_mine.py::test_it"], "", {"bench_tests/test_mine.py"}),
        (["test_root.py"], "", {"test_root.py"}),
    ],
)
def test_a_test_of_cases_is_collected_where_it_or_its_folder_is_named(
    pytester, arguments, testpaths, files
):
    """Whoever runs the unit tests of a repository does not mean to train for hours."""
    pytester.makeini(f"[pytest]\ntestpaths = {testpaths}\n")
    ids = collected(pytester, *arguments)
    assert {one.partition("::")[0] for one in ids} == files
    assert len(ids) == len({*ids})


@pytest.mark.usefixtures("repository")
def test_who_stands_in_the_folder_names_it(pytester, monkeypatch):
    pytester.makeini("[pytest]\ntestpaths = tests\n")
    monkeypatch.chdir(pytester.path / "bench_tests")
    result = pytester.runpytest_inprocess("--collect-only", "-q")
    assert {one.partition("::")[0] for one in result.outlines if "::" in one} == MINE | SUITE


def test_system_files_elsewhere_are_run_where_they_are_named(pytester, systems):
    elsewhere = pytester.path / "perf" / "nightly"
    elsewhere.parent.mkdir()
    systems.rename(elsewhere)
    pytester.path.joinpath("bench_tests/notes.txt").touch()
    ids = tuple(one.replace("bench_tests/systems", "perf/nightly") for one in ONE + TWO)
    given = ("--dlperf-systems", "perf/nightly")
    assert collected(pytester, "perf", *given) == ids
    assert collected(pytester, "bench_tests", *given) == ids
    assert collected(pytester, "bench_tests", "perf", *given) == ids
    pytester.makeini("[pytest]\ndlperf_systems = perf/nightly\n")
    assert collected(pytester, "perf") == ids
    assert collected(pytester, "bench_tests") == ()


def test_a_folder_without_a_system_file_is_told(pytester, systems):
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["dlperf: 'pytest bench_tests' runs the tests that come with *"])
    for file in systems.iterdir():
        file.unlink()
    result = pytester.runpytest_inprocess("bench_tests")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        ["dlperf: there is no system file (?.yaml) in bench_tests/systems; 'pytest-dlperf init'*"]
    )


@pytest.mark.end_to_end
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_they_measure_and_judge(suite, workers):
    TinySystem(suite, topologies=("1n1g", "1n2g"))
    arguments = ("-k", "tiny", "--dlperf-repeats=1", "--dlperf-create-baselines", *workers)
    result = suite.run(*arguments)
    result.assert_outcomes(passed=3)
    assert (suite.path / "baselines" / "local" / "tiny-mlp.yaml").is_file()


# The plugin takes part in a session where a test or an option asks for it, and nowhere else

SPY = """\
import sys

def pytest_unconfigure(config):
    names = [name for name, _ in config.pluginmanager.list_name_plugin() if "dlperf" in name]
    modules = [name for name in sys.modules if name.startswith("pytest_dlperf.")]
    print("\\nPLUGINS", *names)
    print("ROOMS", *sorted({name.split(".")[1] for name in modules}))
    print("YAML", "yaml" in sys.modules)
"""
ALONE = ("-p", "no:benchmark", "-p", "no:xdist")


def spied(pytester, *arguments):
    pytester.makeconftest(SPY)
    result = pytester.run(sys.executable, "-m", "pytest", *arguments)
    found = (line.partition(" ") for line in result.outlines)
    return result, {word: rest for word, _, rest in found if word in {"PLUGINS", "ROOMS", "YAML"}}


def foreign_project(pytester):
    """Tests of somebody else, who has a folder of the same name."""
    systems = pytester.mkdir("bench_tests") / "systems"
    systems.mkdir()
    (systems / "planets.yaml").write_text("sun: {mass: 1\n", encoding="utf-8")
    pytester.makepyfile("def test_it(): pass")
    return systems


def test_a_project_without_tests_of_ours_does_not_notice(pytester):
    foreign_project(pytester)
    result, seen = spied(pytester, *ALONE)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert seen["PLUGINS"] == "pytest_dlperf.plugin"
    assert set(seen["ROOMS"].split()) == {"config", "model", "plugin"}
    assert seen["YAML"] == "False"
    assert "dlperf:" not in result.stdout.str()
    assert not (pytester.path / ".dlperf").exists()


@pytest.mark.parametrize("times", [False, pytest.param(True, marks=pytest.mark.ci)])
def test_pytest_benchmark_is_seen_where_a_test_uses_it(pytester, monkeypatch, times):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # in a worker it saves nothing
    pytester.makepyfile(f"def test_it({'benchmark' * times}): {'benchmark(len, ())' * times or 0}")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert ("\nbenchmark: " in result.stdout.str()) is times
    assert not (pytester.path / ".benchmarks").exists()
    if times:
        pytester.runpytest_subprocess("--benchmark-autosave").assert_outcomes(passed=1)
        assert len([*(pytester.path / ".benchmarks").rglob("*.json")]) == 1


def test_workers_do_not_notice_either(pytester, monkeypatch):
    """Their controller has looked into the folder; what it thinks of it, it keeps to itself."""
    foreign_project(pytester)
    pytester.makepyfile(test_cases=OWN)
    monkeypatch.setenv("DLPERF_STRICT", "perhaps")
    result = pytester.runpytest_subprocess("-n2")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    printed = result.stdout.str() + result.stderr.str()
    assert "planets" not in printed
    assert "dlperf:" not in printed


def test_an_option_asks(pytester):
    foreign_project(pytester)
    result = pytester.runpytest_inprocess("--dlperf-strict")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*planets.yaml:*not YAML*"])


@pytest.mark.parametrize(
    ("fixture", "workers"),
    [("dlperf_case", []), ("dlperf_measure", ["-n2"])],
)
def test_a_fixture_asks(pytester, fixture, workers):
    foreign_project(pytester)
    pytester.makepyfile(test_ours=f"def test_ours({fixture}): pass")
    result = pytester.runpytest_subprocess("test_ours.py", *workers)
    codes = pytest.ExitCode
    assert result.ret == (codes.TESTS_FAILED if workers else codes.USAGE_ERROR)
    (result.stdout if workers else result.stderr).fnmatch_lines(["*planets.yaml:*not YAML*"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_mistakes_are_told_before_what_follows_from_them(suite):
    suite.system_file("framework: tiny\n")
    result = suite.pytester.runpytest_subprocess(
        "bench_tests/systems/own.yaml::test_throughput[tiny-mlp-fp32-b4-1n1g]"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*own.yaml:1: $: the key 'model' is missing"])


def test_other_tests_of_a_project_with_a_suite_leave_it_alone(suite):
    """Neither mistakes in it nor reports of it, which would be empty, are their business."""
    suite.system_file("framework: tiny\n")
    suite.pytester.makeini("[pytest]\ndlperf_json = results.json\n")
    suite.pytester.makepyfile(test_unit="def test_it(): pass")
    result = suite.pytester.runpytest_subprocess("test_unit.py")
    result.assert_outcomes(passed=1)
    assert not (suite.path / "results.json").exists()


@pytest.mark.parametrize("option", ["--setup-plan", "--collect-only"])
def test_what_runs_no_test_measures_and_writes_nothing(suite, option):
    result = suite.run("-k", "throughput and paddle", option)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*nothing was measured*")
    assert not (suite.path / ".dlperf").exists()


# pytest's own options


@pytest.mark.in_process
def test_pytest_s_own_options_work_as_ever(suite, monkeypatch):
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 3, "1n2g": [760.0] * 3})
    slower = nights.usual("slower", of_1n1g=0.8)

    def outcomes(*arguments):
        found = suite.run(*slower, *arguments).parseoutcomes()
        return found["failed"], found.get("passed", 0)

    assert outcomes("--durations=3", "-p", "no:xdist") == (1, 2)
    assert outcomes("--lf") == (1, 0)
    assert outcomes("--ff", "-vv") == (1, 2)
    assert outcomes("-x", "-p", "no:cacheprovider") == (1, 0)
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:benchmark -x")
    assert outcomes("-q") == (1, 0)

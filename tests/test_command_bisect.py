"""``pytest-dlperf bisect`` in repositories whose trainer sleeps longer from some commit on."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fork_server
import pytest
from clusters.processes import wait_until
from hunted_repository import (
    CASE,
    SLOW_S,
    STEP_S,
    HuntedRepository,
    QuickRepository,
)

from pytest_dlperf.config.launch_variables import LaunchVariables
from pytest_dlperf.culprit.checkouts import Checkout, Workshop
from pytest_dlperf.culprit.journal import FoundCommit, FoundEntry, note_found
from pytest_dlperf.culprit.trial import measuring
from pytest_dlperf.measure.case_launch import LaunchChange
from pytest_dlperf.model.judgement import FoundCulprit

pytestmark = pytest.mark.usefixtures("_package_stays", "own_environment")


@pytest.fixture
def repository(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    found = QuickRepository(tmp_path / "repository", popen=fork_server.session, capture=capfd)
    found.set_up()
    return found


def journal(repository):
    [file] = repository.folder.glob(".dlperf/hunts/*/hunt.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_commit_is_found_and_told(repository):
    repository.fill(8, slow=5)
    file = repository.folder / "found.md"
    code, output = repository.bisect("--markdown", str(file))
    assert code == 0, output
    culprit = repository.commits[5][:12]
    assert re.search(rf"{CASE}: found: {culprit}, .* % sure, \d+ runs", output), output
    assert re.search(r"run \d+ of about \d+: \S+: \d+\.?\d* samples/s; done about \d\d:", output)
    assert "Change number 5 (Chen Wei, " in output
    assert re.search(r"throughput: -\d\d\.\d % \(95 %: -\d\d\.\d to -\d\d\.\d %\) from ", output)
    text = file.read_text(encoding="utf-8")
    assert f"found: {culprit}" in text
    # So examples/github-why.yml finds the pull request.
    assert f"\n- commit {culprit}: Change number 5" in text
    # Later sessions know which commit of which checkout it was.
    found = json.loads((repository.folder / ".dlperf" / "found.jsonl").read_text(encoding="utf-8"))
    assert found["commits"] == [{"repository": str(repository.folder), "name": culprit}]
    # The same command has the answer without a run.
    lines = len(journal(repository))
    assert f"{CASE}: found: {culprit}" in repository.bisect()[1]
    assert len(journal(repository)) == lines


def judged(repository):
    """Have a session: when it began, and what explains its throughput."""
    file = repository.folder.with_name("results.json")
    repository.session("--dlperf-json", str(file))
    results = json.loads(file.read_text(encoding="utf-8"))
    (case,) = results["cases"]
    return results["started"], case["explanations"].get("throughput", {})


def accept(repository):
    repository.fill(0, slow=9)
    repository.good_night()
    repository.commit("Accept the first numbers")


def be_slow(repository):
    repository.trainer(STEP_S + SLOW_S)
    repository.commit("Slow down")


def test_a_loss_after_a_green_session_at_another_commit_is_new(
    repository,
):
    accept(repository)
    be_slow(repository)
    for _ in range(2):
        judged(repository)
    repository.trainer(STEP_S)
    repository.commit("Be fast again")
    green, _ = judged(repository)
    be_slow(repository)
    started, told = judged(repository)
    assert (told["since"]["at"], told["last_good"]["at"]) == (started, green)
    assert told["red_since"] is None


@pytest.mark.parametrize("way", ["revert", pytest.param("reset", marks=pytest.mark.ci)])
def test_a_commit_that_the_checkout_has_no_longer_explains_no_other_loss(repository, way):
    accept(repository)
    be_slow(repository)
    first, _ = judged(repository)
    culprit = FoundCommit(repository=str(repository.folder), name=repository.commits[-1][:12])
    found = FoundEntry(
        case_id=CASE, metric="throughput", at=first, found=FoundCulprit("it"), commits=(culprit,)
    )
    note_found(repository.folder / ".dlperf" / "history.sqlite3", found)
    _, told = judged(repository)
    assert told["found"]["said"] == "it"
    assert told["since"]["at"] == first

    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    undo = ["revert", "--no-edit", "HEAD"] if way == "revert" else ["reset", "--hard", "HEAD~1"]
    repository.git(*identity, *undo)
    be_slow(repository)
    started, _ = judged(repository)
    _, told = judged(repository)
    assert (told["since"]["at"], told["red_since"]["at"]) == (started, first)
    assert told["found"] is None


@pytest.mark.ci
def test_commits_that_do_not_build_are_passed_over(repository):
    repository.fill(8, slow=6, broken=4)
    code, output = repository.bisect("--build", "echo building; test ! -e broken")
    assert code in (0, 125), output
    # Commit 5 does not build: 5 and 6 cannot be told apart.
    found = re.search(r"found: ([0-9a-f]{12}) or ([0-9a-f]{12}),", output)
    assert code == 125
    assert found is not None, output
    assert set(found.groups()) == {repository.commits[one][:12] for one in (5, 6)}
    assert "the build failed with exit code 1" in output


def trials_of(repository):
    """Return the runs that the hunts of a repository have kept."""
    try:
        return [line["trial"] for line in journal(repository) if line.get("trial")]
    except (OSError, ValueError):  # no hunt has begun, or one is writing
        return []


@pytest.mark.minutes(1)
@pytest.mark.ci
def test_a_killed_hunt_goes_on_and_finds_the_same(repository):
    repository.fill(64, slow=41, broken=16)
    ends = f"{repository.commits[0]}..{repository.commits[-1]}"
    words = ("bisect", ends, "--case", CASE, "--build", "test ! -e broken")
    for count in (0, 1, 3):
        program = repository.start(*words)
        while program.poll() is None and len(trials_of(repository)) < count:
            time.sleep(0.1)
        program.send_signal(signal.SIGKILL)
        program.communicate()
    code, output = repository.run(*words)
    assert code == 0, output
    assert re.search(rf"found: {repository.commits[41][:12]}, ", output), output
    assert "going on after" in output
    trials = trials_of(repository)
    # It was begun again at once: levels are those of before.
    assert {trial["sitting"] for trial in trials} == {0}


@pytest.mark.ci
def test_a_merge_is_told_with_the_commits_that_it_brought(repository):
    repository.fill(2, slow=99)
    repository.git("checkout", "-q", "-b", "topic")
    for number in range(3):
        if number == 1:
            repository.trainer(STEP_S + SLOW_S)
        repository.commit(f"Topic {number}")
    culprit = repository.commits[-2][:12]
    repository.git("checkout", "-q", "main")
    (repository.folder / "other").write_text("1", encoding="utf-8")
    repository.commit("Something else")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    repository.git(*identity, "merge", "-q", "--no-ff", "-X", "ours", "-m", "Merge topic", "topic")
    repository.commits.append(repository.git("rev-parse", "HEAD"))
    repository.commit("After it")
    merge = repository.commits[-2][:12]
    code, output = repository.bisect()
    assert code == 0, output
    assert f"found: {merge}, " in output
    found = re.search(r"  a merge: bisect (\S+)\n", output)
    assert found is not None, output
    code, output = repository.run("bisect", found[1], "--case", CASE)
    assert code == 0, output
    assert f"found: {culprit}, " in output, output


@pytest.mark.ci
def test_ends_that_nights_have_shown_are_not_measured_first(repository):
    repository.fill(4, slow=3)
    repository.nights()
    code, output = repository.bisect()
    assert code == 0, output
    assert re.search(rf"found: {repository.commits[3][:12]}, .* sure, [2-5] runs", output), output


def test_runs_are_those_of_the_red_session_or_none(repository):
    repository.fill(2, slow=99)
    cluster = repository.folder / "baselines" / "local" / "cluster.yaml"
    cluster.parent.mkdir(parents=True)
    cluster.write_text('vars: {"*": {env: {OTHER: "1"}}}\n', encoding="utf-8")
    slow = ("--dlperf-set", f"*.env.SLOW_S={SLOW_S}")
    repository.nights(runs=3, bad=slow)
    code, output = repository.bisect()
    assert code == 2, output
    assert f": SLOW_S was {SLOW_S}, and would be not set. They need" in output
    # With its option both ends are measured: nights that were launched otherwise tell nothing.
    code, output = repository.bisect("--runs", "2", "--", "bench_tests", *slow)
    assert code == 1, output
    assert "the budget is spent after 2 runs of both ends, and whether they differ is not" in output


@pytest.mark.ci
def test_trees_have_the_submodules_of_their_commits(repository, monkeypatch):
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    library = HuntedRepository(repository.folder.with_name("library"))
    library.folder.mkdir()
    library.git("init", "-q", "-b", "main")
    for number in range(4):
        text = f"SECONDS = {SLOW_S * (number > 1)}\n"
        (library.folder / "slowlib.py").write_text(text, encoding="utf-8")
        library.commit(f"Library {number}")
    repository.git("submodule", "add", "-q", str(library.folder), "lib")
    for number in (0, 0, 3, 3):
        repository.git("-C", "lib", "checkout", "-q", library.commits[number])
        repository.commit(f"Use library {number}")
    code, output = repository.bisect()
    assert code == 0, output
    assert f"found: {repository.commits[2][:12]}, " in output


# ------------------------------------------------------------------------- bad input


def test_a_case_that_an_end_has_not_is_told(repository):
    repository.write_system(batch=8)
    repository.commit("Measure with 8")
    repository.write_system(batch=4)
    repository.commit("Measure with 4")
    code, output = repository.bisect()
    assert code == 1
    assert "GOOD, " in output
    assert f"no test measures the case {CASE}; did you mean 'own-net-fp32-b8-1n1g'" in output


def test_a_commit_without_the_system_file_is_told(repository):
    file = repository.folder / "bench_tests" / "systems" / "net.yaml"
    text = file.read_text(encoding="utf-8")
    file.unlink()
    repository.commit("Begin")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    repository.commit("Measure")
    code, output = repository.bisect()
    assert code == 1
    assert "GOOD, " in output
    assert "nothing was hunted" in output or "has no folder" in output, output


def test_what_lies_in_a_tree_is_not_moved_once_more():
    """Trees lie below the checkout, unless told otherwise."""
    tree = "/repo/.dlperf/hunts/trees/1"
    change = LaunchChange(folders={"/repo": tree})
    values = {"a": "/repo/a", "b": f"{tree}/b", "c": f"{tree}:/repo:/repo2"}
    moved = change.of_variables(LaunchVariables(values=values)).values
    assert moved == {"a": f"{tree}/a", "b": f"{tree}/b", "c": f"{tree}:{tree}:/repo2"}


def test_what_only_names_outputs_is_no_part_of_the_question():
    words = ("bench_tests", "--dlperf-json", "../night-1.json", "--dlperf-markdown=1.md", "-k", "x")
    assert measuring(words) == ("bench_tests", "-k", "x")
    assert measuring(("--dlperf-set", "*.env.A=1", "-x")) == ("--dlperf-set=*.env.A=1", "-x")


@pytest.mark.ci
def test_a_build_that_hangs_is_ended(repository):
    repository.fill(2, slow=1)
    build = ("--build", "test -e $DLPERF_CHECKOUT/.dlperf/ready || sleep 100", "--build-limit")
    code, output = repository.bisect(*build, "1")
    assert code == 1
    assert "GOOD, " in output
    assert "took longer than 1 s; --build-limit allows more; nothing was hunted" in output
    # It is tried again.
    (repository.folder / ".dlperf" / "ready").touch()
    code, output = repository.bisect(*build, "60")
    assert code == 0, output
    assert f"found: {repository.commits[1][:12]}" in output


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_build_ends_with_its_hunt(repository, ended_by):
    repository.fill(2, slow=1)
    file = repository.folder / ".dlperf" / "build"
    ends = f"{repository.commits[0]}..{repository.commits[-1]}"
    build = f"echo $$ >{file}.new; mv {file}.new {file}; exec sleep 1000"
    program = repository.start("bisect", ends, "--case", CASE, "--build", build)
    while program.poll() is None and not file.exists():
        time.sleep(0.05)
    program.send_signal(ended_by)
    output = program.communicate()[0]
    if ended_by == signal.SIGKILL:
        assert program.returncode == -ended_by
    else:
        assert program.returncode == 128, output
        assert "aborted: it was interrupted. The same command goes on from here" in output
    ended = Path("/proc", file.read_text(encoding="utf-8").strip())
    wait_until(lambda: not ended.exists(), what="the build ended")


def test_two_hunts_build_a_tree_once(repository):
    repository.fill(1, slow=1)
    built = repository.folder.with_name("built")

    def tree():
        shop = Workshop(
            Checkout(repository.folder), built, f"echo 1 >>{built}.log; sleep 0.5", limit_s=60
        )
        return shop.tree(repository.commits[0])

    with ThreadPoolExecutor() as pool:
        trees = [pool.submit(tree) for _ in range(3)]
    assert {one.result() for one in trees} == {built / repository.commits[0][:12]}
    assert built.with_name("built.log").read_text(encoding="utf-8") == "1\n"


@pytest.mark.parametrize(
    ("ends", "problem"),
    [
        ("HEAD", "'HEAD' is not GOOD..BAD"),
        ("..HEAD", "'..HEAD' is not GOOD..BAD"),
        ("HEAD..HEAD", "are the same commit"),
        ("HEAD..HEAD~1", "HEAD is newer than HEAD~1; write the good commit first"),
        ("no-such..HEAD", "there is no commit 'no-such' in "),
    ],
)
def test_ends_that_are_none(repository, ends, problem):
    repository.fill(2, slow=1)
    code, output = repository.run("bisect", ends, "--case", CASE)
    assert code == 2
    assert problem in output


def test_a_dirty_checkout_is_refused(repository):
    repository.fill(2, slow=1)
    repository.trainer(2 * STEP_S)
    code, output = repository.bisect()
    assert code == 2
    assert "has changes that no commit has: train.py; they would be in no candidate" in output


def test_a_shallow_clone_is_told(repository):
    repository.fill(4, slow=2)
    shallow = HuntedRepository(repository.folder.with_name("shallow"), repository.commits)
    repository.git(
        "clone", "-q", "--depth", "2", f"file://{repository.folder}", str(shallow.folder)
    )
    code, output = shallow.bisect()
    assert code == 2
    assert "the clone is shallow: git fetch --unshallow" in output


def test_another_case_is_refused_with_a_hint(repository):
    repository.fill(2, slow=1)
    code, output = repository.run("bisect", "HEAD~1..HEAD", "--case", "own-net-fp32-b4-1n1")
    assert code == 2
    assert f"there is no case 'own-net-fp32-b4-1n1'; did you mean '{CASE}'" in output


@pytest.mark.ci
def test_a_plan_is_printed_and_nothing_is_run(repository):
    repository.fill(16, slow=3)
    code, output = repository.bisect("--dry-run")
    assert code == 0
    assert f"{CASE}, throughput: 16 commits" in output
    assert re.search(r"runs to expect for a loss of 3 times the noise: 1\d", output)
    assert not [*repository.folder.glob(".dlperf/hunts/*/hunt.jsonl")]


def test_one_hunt_at_a_time(repository):
    repository.fill(4, slow=2)
    ends = f"{repository.commits[0]}..{repository.commits[-1]}"
    first = repository.start("bisect", ends, "--case", CASE)
    try:
        first.stdout.readline()  # it has begun
        code, output = repository.bisect()
    finally:
        first.kill()
        first.communicate()
    assert code == 2
    assert "this hunt is under way in another process" in output

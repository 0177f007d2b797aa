"""``pytest-dlperf bisect`` in repositories whose trainer sleeps longer from some commit on."""

import json
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fork_server
import pytest
from bisected_repository import (
    CASE,
    SLOW_S,
    STEP_S,
    BisectedRepository,
    QuickRepository,
)
from clusters.processes import wait_until

from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.culprit.candidates import differences_of
from pytest_dlperf.culprit.checkouts import Checkout, Workshop
from pytest_dlperf.culprit.journal import FoundCommit, FoundEntry, note_found
from pytest_dlperf.measure.case_launch import LaunchChange
from pytest_dlperf.model.judgement import FoundCulprit
from pytest_dlperf.model.measurement import Fingerprint, LaunchFacts

pytestmark = pytest.mark.usefixtures("_package_stays", "own_environment")

SLOW = ("--dlperf-set", f"*.env.SLOW_S={SLOW_S}")
INNOCENT = ("--dlperf-set", "*.env.INNOCENT=1")
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org")


@pytest.fixture
def repository(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    found = QuickRepository(tmp_path / "repository", popen=fork_server.session, capture=capfd)
    found.set_up()
    return found


def journal(repository):
    [file] = repository.folder.glob(".dlperf/bisect/*/runs.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def said(repository):
    """Read what the last session printed, in one line."""
    file = repository.folder.with_name("session.txt")
    return " ".join(file.read_text(encoding="utf-8").split())


def judged(repository, *arguments):
    """Have a session: when it began, and what explains its throughput."""
    file = repository.folder.with_name("results.json")
    repository.session("--dlperf-json", str(file), *arguments)
    results = json.loads(file.read_text(encoding="utf-8"))
    (case,) = results["cases"]
    return results["started"], case["explanations"].get("throughput", {})


def accept(repository):
    repository.commit("Begin")
    repository.good_night()


def be_slow(repository):
    repository.trainer(STEP_S + SLOW_S)
    return repository.commit("Slow down")


def why(repository, *arguments, of_pytest=()):
    command = ("bisect", "--case", CASE, "--yes", *arguments)
    return repository.run(*command, "--", "bench_tests", *of_pytest)


# ---------------------------------------------------------------------- a range of commits


@pytest.mark.ci
def test_the_commit_is_found_and_told(repository):
    repository.fill(8, slow=5)
    file = repository.folder / "found.md"
    code, output = repository.bisect("--markdown", str(file))
    assert code == 0, output
    culprit = repository.commits[5][:12]
    assert re.search(rf"{CASE}: found: {culprit}, 9\d % sure, \d+ runs", output), output
    assert re.search(r"run \d+ of about \d+: \S+: \d+\.?\d* samples/s; done about \d\d:", output)
    assert "Change number 5 (Chen Wei, " in output
    assert re.search(r"throughput: -\d\d\.\d % \(95 %: -\d\d\.\d to -\d\d\.\d %\) from ", output)
    text = file.read_text(encoding="utf-8")
    assert f"found: {culprit}" in text
    # So examples/github-bisect.yml finds the pull request.
    assert f"\n- commit {culprit}: Change number 5" in text
    # Later sessions know which commit of which checkout it was.
    found = json.loads((repository.folder / ".dlperf" / "found.jsonl").read_text(encoding="utf-8"))
    assert found["commits"] == [{"repository": str(repository.folder), "name": culprit}]
    # The same command has the answer without a run.
    lines = len(journal(repository))
    assert f"{CASE}: found: {culprit}" in repository.bisect()[1]
    assert len(journal(repository)) == lines


@pytest.mark.minutes(1)
@pytest.mark.nightly
def test_a_killed_search_goes_on_and_passes_over_what_does_not_build(repository):
    repository.fill(64, slow=41, broken=16)
    ends = f"{repository.commits[0]}..{repository.commits[-1]}"
    words = ("bisect", ends, "--case", CASE, "--yes", "--build", "test ! -e broken")
    for count in (0, 1, 3):
        program = repository.start(*words)
        while program.poll() is None and runs_of(repository) < count:
            time.sleep(0.1)
        program.send_signal(signal.SIGKILL)
        program.communicate()
    code, output = repository.run(*words)
    assert code == 0, output
    assert re.search(rf"found: {repository.commits[41][:12]}, ", output), output
    assert "going on after" in output
    # It was begun again at once: levels are those of before.
    assert {run["sitting"] for run in journal(repository)} == {0}


def runs_of(repository):
    """Count the runs that a search has kept."""
    try:
        return len(journal(repository))
    except (OSError, ValueError):  # none has begun, or one is writing
        return 0


@pytest.mark.nightly
def test_a_merge_is_told_with_the_commits_that_it_brought(repository):
    repository.fill(2, slow=99)
    repository.git("checkout", "-q", "-b", "topic")
    for number in range(3):
        if number == 1:
            repository.trainer(STEP_S + SLOW_S)
        repository.commit(f"Topic {number}")
    repository.git("checkout", "-q", "main")
    (repository.folder / "other").write_text("1", encoding="utf-8")
    repository.commit("Something else")
    repository.git(*IDENTITY, "merge", "-q", "--no-ff", "-X", "ours", "-m", "Merge topic", "topic")
    repository.commits.append(repository.git("rev-parse", "HEAD"))
    code, output = repository.bisect()
    assert code == 0, output
    merge = repository.commits[-1][:12]
    assert f"found: {merge}, " in output
    assert f"  a merge: bisect {repository.commits[2][:12]}..{merge}^2\n" in output


def test_runs_are_those_of_the_red_session_or_none(repository):
    repository.fill(2, slow=99)
    cluster = repository.folder / "baselines" / "local" / "cluster.yaml"
    cluster.parent.mkdir(parents=True)
    cluster.write_text('vars: {"*": {env: {OTHER: "1"}}}\n', encoding="utf-8")
    repository.good_night()
    repository.session(*SLOW, *INNOCENT)
    missing = ("INNOCENT was 1, and is not set; ", f"SLOW_S was {SLOW_S}, and is not")
    options = f"--dlperf-set own-net.env.INNOCENT=1 --dlperf-set own-net.env.SLOW_S={SLOW_S}\n"
    for code, output in (repository.bisect(), why(repository)):
        assert code == 2, output
        assert [one for one in missing if one not in output] == []
        assert f"-- bench_tests {options}" in output
    # With its options both ends are measured.
    code, output = repository.bisect("--runs", "2", "--", "bench_tests", *SLOW, *INNOCENT)
    assert code == 1, output
    assert "the budget is spent after 2 runs of both ends, and whether they differ is not" in output


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_a_build_ends_with_its_search(repository, ended_by):
    repository.fill(2, slow=1)
    file = repository.folder / ".dlperf" / "build"
    ends = f"{repository.commits[0]}..{repository.commits[-1]}"
    build = f"echo $$ >{file}.new; mv {file}.new {file}; exec sleep 1000"
    program = repository.start("bisect", ends, "--case", CASE, "--yes", "--build", build)
    while program.poll() is None and not file.exists():
        time.sleep(0.05)
    if ended_by == signal.SIGTERM:  # one search at a time
        code, output = repository.bisect("--build", build)
        assert (code, "another process is at this search" in output) == (2, True)
    program.send_signal(ended_by)
    output = program.communicate()[0]
    if ended_by == signal.SIGKILL:
        assert program.returncode == -ended_by
    else:
        assert program.returncode == 128, output
        assert "aborted: it was interrupted. The same command goes on from here" in output
    ended = Path("/proc", file.read_text(encoding="utf-8").strip())
    wait_until(lambda: not ended.exists(), what="the build ended")


def test_a_build_is_made_once_and_ended_when_it_hangs(repository):
    repository.fill(1, slow=1)
    built = repository.folder.with_name("built")
    commit = repository.commits[0]

    def tree():
        build = f"echo 1 >>{built}.log; sleep 0.5"
        return Workshop(Checkout(repository.folder), built, build, limit_s=60).tree(commit)

    with ThreadPoolExecutor() as pool:
        trees = [pool.submit(tree) for _ in range(3)]
    assert {one.result() for one in trees} == {built / commit[:12]}
    assert built.with_name("built.log").read_text(encoding="utf-8") == "1\n"
    code, output = repository.bisect("--build", "sleep 100", "--build-limit", "1")
    assert code == 1
    assert "took longer than 1 s; --build-limit allows more; nothing was searched" in output
    [failed] = journal(repository)
    assert failed["seconds"] >= 1


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("missing", ["case", "file"])
def test_a_good_end_without_the_case_is_told(repository, missing):
    file = repository.folder / "bench_tests" / "systems" / "net.yaml"
    if missing == "case":
        repository.write_system(batch=8)
    else:
        file.unlink()
    repository.commit("Begin")
    file.parent.mkdir(parents=True, exist_ok=True)
    repository.write_system(batch=4)
    repository.commit("Measure with 4")
    code, output = repository.bisect()
    assert code == 1
    assert "GOOD, " in output
    assert "nothing was searched" in output
    hint = f"no test measures the case {CASE}; did you mean 'own-net-fp32-b8-1n1g'"
    assert (hint in output) is (missing == "case")


def test_what_cannot_be_searched_is_refused(repository):
    repository.fill(2, slow=1)
    for words, problem in (
        (("HEAD",), "'HEAD' is not GOOD..BAD"),
        (("..HEAD",), "'..HEAD' is not GOOD..BAD"),
        (("HEAD..HEAD",), "are the same commit"),
        (("HEAD..HEAD~1",), "HEAD is not an ancestor of HEAD~1; write the good commit first"),
        (("no-such..HEAD",), "there is no commit 'no-such' in "),
        (("HEAD~1..HEAD", "--case", f"{CASE[:-1]}"), f"did you mean '{CASE}'"),
        (("HEAD~1..HEAD",), "nothing was run; --yes starts it without asking"),
        ((), "there is no history "),
    ):
        code, output = repository.run("bisect", "--case", CASE, *words)
        assert code == 2, words
        assert problem in output
    assert not [*repository.folder.glob(".dlperf/bisect/*/runs.jsonl")]


def test_commits_that_are_not_all_there_are_refused(repository):
    repository.fill(4, slow=2)
    shallow = BisectedRepository(repository.folder.with_name("shallow"), repository.commits)
    repository.git(
        "clone", "-q", "--depth", "2", f"file://{repository.folder}", str(shallow.folder)
    )
    code, output = shallow.bisect()
    assert (code, "the clone is shallow: git fetch --unshallow" in output) == (2, True)
    repository.trainer(2 * STEP_S)
    code, output = repository.bisect()
    assert code == 2
    assert "has changes that no commit has: train.py; they would be in no candidate" in output


def test_what_lies_in_a_tree_is_not_moved_once_more():
    """Trees lie below the checkout, unless told otherwise."""
    tree = "/repo/.dlperf/bisect/trees/1"
    change = LaunchChange(folders={"/repo": tree})
    values = {"a": "/repo/a", "b": f"{tree}/b", "c": f"{tree}:/repo:/repo2"}
    moved = change.of_variables(LaunchVariables(values=values)).values
    assert moved == {"a": f"{tree}/a", "b": f"{tree}/b", "c": f"{tree}:{tree}:/repo2"}


# ------------------------------------------------------------- what differs from a good session


@pytest.mark.ci
def test_a_variable_is_named_and_an_innocent_one_is_not(repository):
    accept(repository)
    assert repository.session(*SLOW, *INNOCENT) == 1
    work = repository.folder.with_name("work")
    code, output = why(repository, "--work", str(work), of_pytest=(*SLOW, *INNOCENT))
    assert code == 0, output
    assert "INNOCENT (not set → " in output
    assert re.search(r"found: SLOW_S \(not set → \S+\), .* sure, \d+ runs", output), output
    # The next session knows it, wherever the search was.
    _, told = judged(repository, *SLOW, *INNOCENT)
    assert re.fullmatch(r"SLOW_S \(not set → \S+\), .* % sure, \d+ runs", told["found"]["said"])
    assert re.search(r"^-\d\d\.\d % \(95 %: ", told["found"]["facts"]["change of throughput"])


@pytest.mark.nightly
def test_commits_and_arguments_are_searched_in_one_row(repository):
    accept(repository)
    repository.write_system(more=', "--innocent"')
    repository.commit("Be careful")
    culprit = be_slow(repository)
    repository.commit("Change another word")
    assert repository.session() == 1
    code, output = why(repository)
    assert "  argument (not set → --innocent)\n" in output
    assert code == 0, output
    assert re.search(rf"found: {culprit[:12]}, .* sure", output), output
    assert "Slow down (" in output


def test_uncommitted_changes_are_named_alike_and_cannot_be_put_back(repository):
    accept(repository)
    repository.trainer(STEP_S + SLOW_S)
    assert repository.session("-v") == 1
    assert "throughput; uncommitted changes in train.py came with the loss" in said(repository)
    to_do = "to do: look first at uncommitted changes in train.py: they came with the loss, nothing"
    assert to_do in said(repository)
    code, output = why(repository)
    assert code == 1
    assert "  uncommitted changes in train.py; not settable: no commit has the changes\n" in output
    assert "nothing that differs can be put back; look at it first" in output


@pytest.mark.nightly
def test_a_script_beside_the_system_files_has_its_commits_searched(repository):
    repository.write_system(starts_here=True)
    accept(repository)
    culprit = be_slow(repository)
    repository.commit("Change a word")
    good, bad = (repository.commits[one][:12] for one in (0, -1))
    assert repository.session("-v") == 1
    assert "; a new commit of repository came with the loss" in said(repository)
    search = f"pytest-dlperf bisect {good}..{bad} --case {CASE}"
    assert f" to do: find the commit: {search} case" in said(repository)
    code, output = why(repository)
    assert code == 0, output
    assert re.search(rf"found: {culprit[:12]}, .* sure", output), output
    # With changes that no commit has, the commits can be searched alone.
    (repository.folder / "NOTES.md").write_text("mine", encoding="utf-8")
    assert repository.session() == 1
    code, output = why(repository)
    assert (code, f"put them aside, and bisect {good}..{bad}\n" in output) == (1, True)


def test_a_session_that_passed_or_has_no_number_has_nothing_to_ask(repository):
    accept(repository)
    code, output = why(repository)
    assert (code, "the last session passed; there is nothing to explain" in output) == (1, True)
    assert repository.session("--dlperf-set", "*.env.SLOW_S=x") == 1
    code, output = why(repository)
    assert (code, f"{CASE}: failed in the last session (" in output) == (1, True)


def test_differences_are_told_of_both_sides():
    commands = (("python3", "t.py", "--lr=1"), ("evil", "t.py", "--lr=2"))
    packages = ({"torch": "2.1"}, {"torch": "2.1", "triton": "3"})
    sides = [
        Fingerprint(launch=LaunchFacts(launcher="local", arguments=one), software=software)
        for one, software in zip(commands, packages, strict=True)
    ]
    assert [one.words for one in differences_of(*sides, {}, "own")] == [
        "program (python3 → evil)",
        "argument (--lr=1 → --lr=2)",
        "triton (not set → 3)",
    ]


# --------------------------------------------------------------------- what was found before


def test_a_loss_after_a_green_session_at_another_commit_is_new(repository):
    accept(repository)
    repository.commit("Accept the first numbers")
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


@pytest.mark.parametrize("way", ["revert", pytest.param("reset", marks=pytest.mark.nightly)])
def test_a_commit_that_the_checkout_has_no_longer_explains_no_other_loss(repository, way):
    accept(repository)
    repository.commit("Accept the first numbers")
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

    undo = ["revert", "--no-edit", "HEAD"] if way == "revert" else ["reset", "--hard", "HEAD~1"]
    repository.git(*IDENTITY, *undo)
    be_slow(repository)
    _, told = judged(repository)
    assert told["found"] is None

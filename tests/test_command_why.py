"""``pytest-dlperf why``: what differs between a good night and tonight is put back, in halves."""

import json
import re
import shutil
import venv
import zipfile
from site import getsitepackages

import fork_server
import pytest
from hunted_repository import CASE, SLOW_S, STEP_S, QuickRepository, wheel

from pytest_dlperf.culprit.differences import suspects_of
from pytest_dlperf.model.differences import MeasuredOn
from pytest_dlperf.model.measurement import LaunchFacts

pytestmark = pytest.mark.usefixtures("_package_stays", "own_environment")

SLOW = ("--dlperf-set", f"*.env.SLOW_S={SLOW_S}")
INNOCENT = ("--dlperf-set", "*.env.INNOCENT=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("hunted")


@pytest.fixture
def repository(place, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    return QuickRepository(place / "repository", popen=fork_server.session, capture=capfd)


def begin(repository):
    shutil.rmtree(repository.folder, ignore_errors=True)
    repository.set_up()
    repository.commit("Begin")


def good_night(repository):
    """Give it a commit and a good night, which all tests share: paths are part of them."""
    kept = repository.folder.with_name("kept")
    if kept.exists():
        shutil.rmtree(repository.folder)
        shutil.copytree(kept, repository.folder, symlinks=True)
        repository.commits = [repository.git("rev-parse", "HEAD")]
        return
    begin(repository)
    repository.good_night()
    shutil.copytree(repository.folder, kept, symlinks=True)


def why(repository, *arguments, of_pytest=()):
    return repository.run("why", CASE, *arguments, "--", "bench_tests", *of_pytest)


def test_a_variable_is_named_and_an_innocent_one_is_not(repository):
    good_night(repository)
    assert repository.session(*SLOW, *INNOCENT) == 1
    # Without the session's options other runs would be tried.
    code, output = why(repository)
    assert code == 2, output
    assert "INNOCENT was 1, and would be not set; " in output
    assert f"SLOW_S was {SLOW_S}, and would be not set. They need" in output
    options = f"--dlperf-set own-net.env.INNOCENT=1 --dlperf-set own-net.env.SLOW_S={SLOW_S}\n"
    assert f"-- bench_tests {options}" in output
    work = repository.folder.with_name("work")
    code, output = why(repository, "--work", str(work), of_pytest=(*SLOW, *INNOCENT))
    assert code == 0, output
    assert "INNOCENT (not set → " in output
    assert re.search(r"found: SLOW_S \(not set → \S+\), .* sure, \d+ runs", output), output
    assert re.search(r"throughput: -\d\d\.\d %", output), output
    # The next night knows it, wherever the hunt was.
    file = repository.folder / "results.json"
    assert repository.session(*SLOW, *INNOCENT, "--dlperf-json", str(file)) == 1
    [case] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    found = case["explanations"]["throughput"]["found"]
    assert re.fullmatch(r"SLOW_S \(not set → \S+\), .* % sure, \d+ runs", found["said"])
    assert re.search(r"^-\d\d\.\d % \(95 %: ", found["facts"]["change of throughput"])


@pytest.mark.ci
def test_an_argument_is_named(repository):
    good_night(repository)
    repository.write_system(more=', "--slow"')
    repository.commit("Be careful")
    assert repository.session() == 1
    code, output = why(repository)
    assert code == 0, output
    assert "found: argument (not set → --slow), " in output, output


@pytest.mark.ci
def test_the_trainers_commit_is_searched(repository):
    good_night(repository)
    repository.commit("Change a word")
    repository.trainer(STEP_S + SLOW_S)
    culprit = repository.commit("Change the trainer")
    repository.commit("Change another word")
    assert repository.session(*INNOCENT) == 1
    code, output = why(repository, of_pytest=INNOCENT)
    assert code == 0, output
    assert re.search(rf"found: {culprit[:12]}, .* sure", output), output
    assert "Change the trainer (" in output


@pytest.mark.minutes(1)
@pytest.mark.ci
def test_a_package_is_put_back_beside_the_trainers_own(repository, tmp_path, monkeypatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    versions = {"0.20.3": 0.0, "0.21.0": SLOW_S}
    files = {version: wheel(wheels, version, s) for version, s in versions.items()}
    venv.create(tmp_path / "venv", symlinks=True)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    text = "".join(f"import site; site.addsitedir({path!r})\n" for path in getsitepackages())
    (packages / "others.pth").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    python = str(tmp_path / "venv" / "bin" / "python")

    def install(version):
        for old in packages.glob("tokenizers*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        zipfile.ZipFile(files[version]).extractall(packages)

    install("0.20.3")
    setting = ("--dlperf-set", f"*.python={python}")
    begin(repository)
    assert repository.session(*setting, "--dlperf-create-baselines") == 0
    install("0.21.0")
    assert repository.session(*setting, *INNOCENT) == 1
    code, output = why(repository, of_pytest=(*setting, *INNOCENT))
    assert code == 0, output
    assert re.search(r"found: tokenizers \(0.20.3 → 0.21.0\), .* sure", output), output


def said(repository):
    """Read what the last session printed, in one line."""
    file = repository.folder.with_name("session.txt")
    return " ".join(file.read_text(encoding="utf-8").split())


def test_uncommitted_changes_are_named_alike_and_cannot_be_put_back(
    repository,
):
    good_night(repository)
    repository.trainer(STEP_S + SLOW_S)
    assert repository.session("-v") == 1
    assert "throughput; uncommitted changes in train.py came with the loss since" in said(
        repository
    )
    to_do = "to do: look first at uncommitted changes in train.py: they came with the loss, nothing"
    assert to_do in said(repository)
    code, output = why(repository)
    assert code == 1
    assert "  uncommitted changes in train.py; not settable: no commit has the changes\n" in output
    assert "to do" not in output  # there is no commit to look for
    assert "nothing that differs can be put back; look at it first" in output


def test_a_script_beside_the_system_files_has_its_commit_named_and_searched(
    repository,
):
    begin(repository)
    repository.write_system(starts_here=True)
    repository.commit("Start where the session does")
    repository.good_night()
    repository.trainer(STEP_S + SLOW_S)
    culprit = repository.commit("Change the trainer")
    repository.commit("Change a word")
    good, bad = (repository.commits[one][:12] for one in (1, -1))
    assert repository.session("-v") == 1
    assert "; a new commit of repository came with the loss since" in said(repository)
    search = f"pytest-dlperf bisect {good}..{bad} --case {CASE}"
    assert f" to do: find the commit: {search} case" in said(repository)
    code, output = why(repository)
    assert f"  commit of repository ({good} → {bad}); settable\n" in output
    assert code == 0, output
    assert re.search(rf"found: {culprit[:12]}, .* sure", output), output
    # With changes that no commit has, the commits can be searched alone.
    (repository.folder / "NOTES.md").write_text("mine", encoding="utf-8")
    assert repository.session() == 1
    code, output = why(repository)
    assert (code, f"to do: {search}\n" in output) == (1, True)


def test_a_night_that_passed_has_nothing_to_ask(repository):
    good_night(repository)
    code, output = why(repository)
    assert code == 1
    assert "the last session passed; there is nothing to explain" in output


def test_a_night_without_a_number_has_nothing_to_ask(repository):
    good_night(repository)
    assert repository.session("--dlperf-set", "*.env.SLOW_S=x") == 1
    code, output = why(repository)
    assert code == 1
    assert f"{CASE}: failed in the last session (" in output


def test_a_program_is_told_from_its_arguments():
    commands = (("python3", "t.py", "--lr=1"), ("evil", "t.py", "--lr=2"))
    good, tonight = (
        MeasuredOn(launch=LaunchFacts(launcher="local", arguments=one)) for one in commands
    )
    found = [suspect.words for suspect in suspects_of(good, tonight, {}, "own")]
    assert found == ["program (python3 → evil)", "argument (--lr=1 → --lr=2)"]


@pytest.mark.ci
def test_a_gain_is_explained_as_well(repository):
    begin(repository)
    assert repository.session(*SLOW, *INNOCENT, "--dlperf-create-baselines") == 0
    assert repository.session() == 0
    code, output = why(repository)
    assert code == 0, output
    assert re.search(rf"found: SLOW_S \({SLOW_S} → not set\), .* sure", output), output
    assert re.search(r"throughput: \+\d+\.\d % \(95 %: ", output), output

"""``pytest-dlperf why``: what differs between a good night and tonight is put back, in halves."""

from __future__ import annotations

import json
import re
import shutil
import venv
import zipfile
from pathlib import Path
from site import getsitepackages

import pytest
from hunted_repository import CASE, HuntedRepository, wheel

pytestmark = pytest.mark.usefixtures("own_environment")

SLOW = ("--dlperf-set", "*.env.SLOW_S=0.03")
INNOCENT = ("--dlperf-set", "*.env.INNOCENT=1")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HuntedRepository:
    monkeypatch.chdir(tmp_path)
    found = HuntedRepository(tmp_path / "repository")
    found.set_up()
    found.commit("Begin")
    return found


def why(
    repository: HuntedRepository, *arguments: str, of_pytest: tuple[str, ...] = ()
) -> tuple[int, str]:
    return repository.run("why", CASE, *arguments, "--", "bench_tests", *of_pytest)


def test_a_variable_is_named_and_an_innocent_one_is_not(repository: HuntedRepository) -> None:
    repository.good_nights()
    assert repository.session(*SLOW, *INNOCENT) == 1
    code, output = why(repository, of_pytest=(*SLOW, *INNOCENT))
    assert code == 0, output
    assert "INNOCENT (not set → " in output
    assert re.search(r"found: SLOW_S \(not set → \S+\), .* sure, \d+ runs", output), output
    assert re.search(r"throughput: -3\d\.\d %", output), output


def test_an_argument_is_named_with_the_commit_that_brought_it(repository: HuntedRepository) -> None:
    repository.good_nights()
    repository.write_system(more=', "--slow"')
    repository.commit("Be careful")
    assert repository.session() == 1
    code, output = why(repository)
    assert code == 0, output
    assert "found: argument (not set → --slow), " in output, output
    assert f"by commit {repository.commits[-1][:12]} of the suite, Be careful" in output


def test_the_trainers_commit_is_searched(repository: HuntedRepository) -> None:
    repository.good_nights()
    repository.commit("Change a word")
    repository.trainer(0.08)
    culprit = repository.commit("Change the trainer")
    repository.commit("Change another word")
    assert repository.session(*INNOCENT) == 1
    code, output = why(repository, of_pytest=INNOCENT)
    assert code == 0, output
    assert re.search(rf"found: {culprit[:12]}, .* sure", output), output
    assert "Change the trainer (" in output


@pytest.mark.ci
def test_a_package_is_put_back_beside_the_trainers_own(
    repository: HuntedRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    versions = {"0.20.3": 0.0, "0.20.4": 0.0, "0.21.0": 0.03}
    files = {version: wheel(wheels, version, s, "tokenizers") for version, s in versions.items()}
    venv.create(tmp_path / "venv", symlinks=True)
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    text = "".join(f"import site; site.addsitedir({path!r})\n" for path in getsitepackages())
    (packages / "others.pth").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    python = str(tmp_path / "venv" / "bin" / "python")

    def install(version: str) -> None:
        for old in packages.glob("tokenizers*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        zipfile.ZipFile(files[version]).extractall(packages)

    install("0.20.3")
    setting = ("--dlperf-set", f"*.python={python}")
    repository.session(*setting, "--dlperf-create-baselines")
    assert repository.session(*setting) == 0
    install("0.21.0")
    assert repository.session(*setting, *INNOCENT) == 1
    code, output = why(repository, of_pytest=(*setting, *INNOCENT))
    assert code == 0, output
    assert re.search(r"found: tokenizers \(0.20.3 → 0.21.0\), .* sure", output), output
    # Versions between both are the same search over another axis.
    words = ("--package", "tokenizers==0.20.3..0.21.0", "--case", CASE)
    code, output = repository.run("bisect", *words, "--", "bench_tests", *setting)
    assert code == 0, output
    assert "found: tokenizers==0.21.0, " in output


def test_what_cannot_be_put_back_is_said(repository: HuntedRepository) -> None:
    repository.good_nights()
    (repository.folder / "train.py").write_text(
        (repository.folder / "train.py").read_text("utf-8").replace("0.05", "0.08"), "utf-8"
    )
    assert repository.session() == 1
    code, output = why(repository)
    assert code == 1
    assert "not settable: it had changes that no commit has" in output
    assert "nothing that differs can be put back; look at hosts, data and the night" in output


def test_a_night_that_passed_has_nothing_to_ask(repository: HuntedRepository) -> None:
    repository.good_nights()
    code, output = why(repository)
    assert code == 1
    assert "the last session passed; there is nothing to explain" in output


def test_a_red_session_asks_why_by_itself(repository: HuntedRepository) -> None:
    repository.good_nights()
    file = repository.folder / "output.txt"
    code = repository.session(*SLOW, "--dlperf-why", "--dlperf-why-budget=20", output=file)
    assert code == 1
    output = file.read_text(encoding="utf-8")
    assert "found: SLOW_S (not set → " in output, output
    # A session that passes asks nothing.
    assert repository.session("--dlperf-why", output=file) == 0
    assert "found" not in file.read_text(encoding="utf-8")
    # One without a number is told, and nothing is tried.
    broken = ("--dlperf-set", "*.env.SLOW_S=x")
    assert repository.session(*broken, "--dlperf-why", output=file) == 1
    output = file.read_text(encoding="utf-8")
    assert f"{CASE}: failed, so there is no number to ask about; hosts and what they" in output
    code, output = why(repository)
    assert code == 1
    assert f"{CASE}: failed in the last session (" in output


def test_the_next_night_knows_what_was_found(repository: HuntedRepository) -> None:
    repository.good_nights()
    assert repository.session(*SLOW) == 1
    assert why(repository, of_pytest=SLOW)[0] == 0
    file = repository.folder / "results.json"
    assert repository.session(*SLOW, "--dlperf-json", str(file)) == 1
    [case] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    found = case["metrics"]["throughput"]["explanation"]["found"]
    assert re.fullmatch(r"found: SLOW_S \(not set → \S+\), .* % sure, \d+ runs", found)


@pytest.mark.ci
def test_a_gain_is_explained_as_well(repository: HuntedRepository) -> None:
    slow = ("--dlperf-set", "*.env.SLOW_S=0.03")
    repository.session(*slow, "--dlperf-create-baselines")
    assert repository.session(*slow, *INNOCENT) == 0
    assert repository.session() == 0
    code, output = why(repository)
    assert code == 0, output
    assert re.search(r"found: SLOW_S \(0.03 → not set\), .* sure", output), output
    assert re.search(r"throughput: \+\d+\.\d % \(95 %: ", output), output

"""The walk of docs/tutorial.md, with the files and commands that stand there."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dlperf.command.main import main

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.md"


def example(name):
    """The code block under ``<!-- example: NAME -->``."""
    below = TUTORIAL.read_text(encoding="utf-8").partition(f"<!-- example: {name} -->\n")[2]
    match = re.match(r"```\w+\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)
    assert match is not None, name
    return match[1]


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """The folder of the tutorial, on a machine without GPUs and Slurm."""
    folder = tmp_path / "walk"
    folder.mkdir()
    (folder / "train.py").write_text(example("train.py"), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("DLPERF_LOCK", os.urandom(8).hex())
    return folder


def verdicts(folder, *arguments):
    """Run a session, one run of the case, and give the verdict of each metric."""
    words = [sys.executable, "-m", *arguments, "-p", "no:benchmark", "--dlperf-repeats=1"]
    subprocess.run(
        [*words, "--dlperf-json=results.json"], cwd=folder, check=False, stdout=subprocess.DEVNULL
    )
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return {name: one["verdict"] for name, one in results["cases"][0]["metrics"].items()}


@pytest.mark.training
def test_three_commands_and_one_file_lead_to_a_verdict(walk, capfd):
    program, *given = shlex.split(example("start a suite"))
    assert program == "pytest-dlperf"
    assert main(given) == 0
    assert "steps 1 to " in capfd.readouterr().out
    files = [file.relative_to(walk) for file in walk.rglob("*.yaml")]
    assert files == [Path("bench_tests/systems/pytorch-walk.yaml")]
    assert files[0].read_text(encoding="utf-8") == example("pytorch-walk.yaml")

    subprocess.run(["/bin/sh", "-c", example("take the marks away")], check=True)
    record = shlex.split(example("record"))
    recorded = verdicts(walk, *record)
    assert recorded["throughput"] == "pass"
    assert (walk / "baselines/local/pytorch-walk.yaml").is_file()


def test_the_slow_down_is_put_behind_the_optimizer_s_step(walk):
    before = example("train.py")
    subprocess.run(["/bin/sh", "-c", example("slow it down")], cwd=walk, check=True)
    after = (walk / "train.py").read_text(encoding="utf-8")
    step = "    optimizer.step()\n"
    assert after == before.replace(step, f"{step}    time.sleep(0.1)\n")

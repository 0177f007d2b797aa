"""The shipped training, for real: recorded, and caught and accepted when it slows down."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
SYSTEM = "pytorch-resnet18"
BASH = shutil.which("bash") or "bash"


def commands(name):
    """The lines of a block of the README, as in an environment that is installed."""
    text = README.read_text(encoding="utf-8")
    block = re.search(rf"<!-- {name} -->\n```sh\n(.*?)```", text, re.DOTALL)
    whole = block[1].replace("\\\n", "").splitlines()
    lines = [line.rpartition(" && ")[2] for line in whole]
    assert all(line.startswith(".venv/bin/pytest ") for line in lines)
    return [line.replace(".venv/bin/pytest", f"{sys.executable} -m pytest", 1) for line in lines]


@pytest.mark.alone
@pytest.mark.minutes(3)
@pytest.mark.training
def test_a_slow_down_is_caught_located_and_accepted_as_the_readme_has_it(suite):
    """Its own commands, of a training with fewer steps and topologies, and more runs."""
    file = suite.path / "bench_tests" / "systems" / f"{SYSTEM}.yaml"
    text = file.read_text(encoding="utf-8")
    # Five runs show what is noise on a machine whose processors others use too.
    for key, usual, here in (("warmup_steps", 4, 1), ("measured_steps", 20, 6), ("repeats", 3, 5)):
        text = text.replace(f"{key}: {usual}", f"{key}: {here}")
    file.write_text(text.replace("      - 2n1g\n", ""), encoding="utf-8")

    def run(command, code):
        done = subprocess.run(
            [BASH, "-c", command],
            cwd=suite.path, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    [record] = commands("main-job")
    run(record, 0)
    slow, accept, again = commands("slow-down")

    told = run(slow, 1)
    for n in ("1n1g", "1n2g"):
        block = rf"^regressed \S+ %.*: throughput.*\n(  .*\n)*?  {SYSTEM}-fp32-b8-{n}: "
        assert re.search(block, told, re.MULTILINE), n
    assert re.search(r"compute or data[^\n]*\(every topology lost \d", " ".join(told.split()))
    assert "deselected" not in told

    assert "ten times the work" in run(accept, 0)
    baselines = suite.path / "baselines" / "local" / f"{SYSTEM}.yaml"
    assert "ten times the work" in baselines.read_text(encoding="utf-8")

    assert "2 passed" in run(again, 0)

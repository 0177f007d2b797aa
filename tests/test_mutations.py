"""The table of breaks fits the code: what is renamed or rewritten has its entry changed with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_each_break_has_its_place_in_the_code_and_its_tests() -> None:
    script = ROOT / "benchmarks" / "mutations.py"
    done = subprocess.run(
        [sys.executable, str(script), "--list"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + "\n".join(
        line for line in done.stdout.splitlines() if line.startswith("does not fit")
    )
    rooms = {file.parent.name for file in ROOT.glob("pytest_dlperf/*/*.py") if has_code(file)}
    assert rooms <= {line.split()[0] for line in done.stdout.splitlines()}, "a room without a break"


def has_code(file: Path) -> bool:
    return "\ndef " in file.read_text(encoding="utf-8")

"""``launch.steps``: what has a trainer print its steps on a node, and why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest_dlperf
from pytest_dlperf.config.launch_keys import Steps

TRAINER: Final = "DLPERF_STEPS"
"""The environment variable that says which trainer's steps are printed."""
SERVING: Final = "serving.py"
_LOOK_BYTES: Final = 1 << 26
_PACKAGE: Final = Path(str(pytest_dlperf.__file__)).parent


def step_files() -> dict[str, str]:
    """Give the files that Python has to find on a node, by name: they need nothing else of ours."""
    trainers = _PACKAGE / "trainers"
    files = {"sitecustomize.py": "sitecustomize.py", "dlperf_steps.py": "steps.py"}
    return {name: (trainers / own).read_text(encoding="ascii") for name, own in files.items()}


def serving_file() -> dict[str, str]:
    """Give the program that runs a server beside a command, by its name."""
    return {SERVING: (_PACKAGE / "node" / SERVING).read_text(encoding="ascii")}


def steps_folder(node_folder: str) -> str:
    """Name the folder of these files, in a run's own folder on a node."""
    return f"{node_folder}/steps"


def why_no_steps(steps: Steps, logs: Sequence[Path]) -> str:
    """Say how far it came where a run shows no step, by what was printed on the way."""
    begin = f"dlperf steps of {steps.value}".encode()
    found = [line for log in logs for line in _lines_with(log, begin, b"dlperf step rank=")]
    if any(begin not in line for line in found):
        return "launch.steps: they were printed, and are read with 'log: {format: dlperf}'"
    for line in found:
        said = line[line.index(begin) :].decode(errors="replace")
        if "cannot" in said:
            return f"launch.steps: {said}"
        return f"launch.steps: {said}, which did not train until its first step was done"
    return (
        f"launch.steps: no Python of the run has imported {steps.value}'s trainer with the folder "
        "that is in front of PYTHONPATH. Is it that trainer? Does 'python -I', '-E' or '-S', a "
        "container without the node's /tmp, or a program that sets PYTHONPATH keep it away? "
        "Otherwise add the callback to the script"
    )


def _lines_with(log: Path, *texts: bytes) -> list[bytes]:
    try:
        with log.open("rb") as file:
            lines = file.read(_LOOK_BYTES).splitlines()
            return [line for line in lines if any(text in line for text in texts)]
    except OSError:
        return []

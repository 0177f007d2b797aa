"""The files that ``pytest-dlperf init`` writes, and what it says comes next."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.command.shell import Style
from pytest_dlperf.config.extends import comment_of
from pytest_dlperf.config.systems import System, doubts_in, system_of_text
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.survey.machine import is_installed

SYSTEMS: Final = Path("bench_tests/systems")
_IGNORED: Final = """\
# This machine's own numbers, and locks.
/local/
/*/.lock
"""
_SMALL_TRAINING: Final = """\
# A small training that comes with the package, on any machine's CPUs: to see what a suite does.
extends: torchrun
model: resnet18
unit: images/s
window: {warmup_steps: 4, measured_steps: 20}
repeats: 3
tolerance_percent: 50
metrics:
  peak_memory: {tolerance_percent: 15}
launch:
  devices: cpu
  arguments: [-m, pytest_dlperf.trainers.resnet, '--batch-per-device={batch_per_device}',
    --image-size=64, '--warmup-steps={warmup_steps}', '--measured-steps={measured_steps}']
  environment: {OMP_NUM_THREADS: '1', CUDA_VISIBLE_DEVICES: ''}
cases:
  - {precision: fp32, batch_per_device: 8, topologies: [1n1g, 1n2g]}
"""
_OF_ANY_MACHINE: Final = "tolerance_percent: 50\n"
WORKFLOWS: Final = {
    "github": {
        "github-nightly.yml": ".github/workflows/dlperf-nightly.yml",
        "github-watch.yml": ".github/workflows/dlperf-watch.yml",
    },
    "gitlab": {"gitlab-ci.yml": ".gitlab-ci.yml"},
    "slurm": {"slurm-nightly.sh": "slurm-nightly.sh"},
}
"""By CI, which file of ``examples`` goes where."""
_EXAMPLES: Final = tuple(Path(__file__).parents[up] / "examples" for up in (1, 2))
"""In the installed package, or in a checkout of it."""


class SuitePlan(Struct, kw_only=True):
    """What was found, what will be written, and what comes next."""

    found: list[str] = []
    files: dict[Path, str] = {}
    lines: list[str] = []
    """Lines to add to the script, below what is said of them."""
    unsure: list[str] = []
    pytest: list[str] = []
    """Arguments of a session, behind the folder."""
    start: list[str] = []
    """The command in front of pytest."""


def add_example(plan: SuitePlan) -> None:
    """Plan a small suite that runs on any machine."""
    plan.found.append("no training here: this is an example; --command takes one of your own")
    if is_installed("torch"):
        plan.files[SYSTEMS / "pytorch-resnet18.yaml"] = _SMALL_TRAINING
        return
    plan.found.append("no PyTorch here: it measures memory instead of a training")
    # Other programs share the memory's bandwidth, so it varies more than a program's own time.
    text = f"{comment_of('host_memory')[1]}{_OF_ANY_MACHINE}"
    plan.files[SYSTEMS / "host-memory.yaml"] = text


def add_system(text: str, plan: SuitePlan) -> System:
    """Plan a system file.

    Raises:
        UsageError: What was found does not make a valid one.
    """
    try:
        system = system_of_text(text, (SYSTEMS / "new.yaml").absolute(), BUILTIN_FORMATS)
        _ = system.launch  # checks it too
    except YamlError as error:
        found = "\n".join(f"  {problem.message}" for problem in error.diagnostics)
        raise UsageError(f"the system file would not be valid:\n{found}\n{text}") from error
    plan.files[SYSTEMS / f"{system.id}.yaml"] = text
    return system


def add_cluster(options: argparse.Namespace, hosts: int, plan: SuitePlan) -> None:
    """Plan the files of a cluster, if the numbers are not those of this machine alone."""
    if Path(".git").exists():
        plan.files[Path("baselines/.gitignore")] = _IGNORED
    name = options.cluster
    if name is not None and not re.fullmatch(r"\w[\w.-]*", name):
        raise UsageError(f"--cluster: {name!r} is not a name; write letters, digits, '_', '.', '-'")
    if name is None and (options.ci is not None or hosts > 1):
        name = "my-cluster"
    if name is None:
        return
    plan.files[Path("baselines") / name / "cluster.yaml"] = (
        f"estimator: steady\ndescription: {name}\n"
        "# Its numbers are compared with each other only: one folder for each kind of machine.\n"
    )
    plan.pytest = ["--dlperf-cluster", name, *plan.pytest]
    for source, target in WORKFLOWS.get(options.ci, {}).items():
        folder = next(each for each in _EXAMPLES if each.is_dir())
        text = (folder / source).read_text(encoding="utf-8")
        plan.files[Path(target)] = text.replace("my-cluster", name)
    if options.ci is not None:
        plan.unsure.append("the job of the CI: what its first lines name, and how it installs")


def written(plan: SuitePlan, style: Style) -> Iterator[str]:
    """Write the files that do not exist, and yield what to tell.

    Raises:
        UsageError: A file cannot be written.
    """
    yield from _rows("found", plan.found)
    for file, text in plan.files.items():
        if os.path.lexists(file):
            yield from _rows("kept", [f"{file}, which was there"])
            continue
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, text)
        except OSError as error:
            raise UsageError(f"{file}: {error.strerror or error}") from error
        yield from _rows("wrote", [style(str(file), "bold")])
    yield from _rows("unsure", list(dict.fromkeys(plan.unsure)))
    yield from _rows("add", plan.lines)
    session = shlex.join([*plan.start, "pytest", "bench_tests", *plan.pytest])
    looks = [
        f"look at the numbers that {file} marks with ?, and take the marks away"
        for file, text in plan.files.items()
        if doubts_in(text, file)
    ]
    yield from _rows("next", [*looks, f"{session} --dlperf-create-baselines", f"then {session}"])


def _rows(label: str, texts: list[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield f"  {'' if number else label:<10}{text}"

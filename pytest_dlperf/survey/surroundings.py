"""What a folder and its machine tell of a training: who trains, how it is started, on what."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.node.accelerators import Look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_FILES: Final = 2000
_LARGEST: Final = 1 << 18
_PASSED_BY: Final = frozenset({"node_modules", "site-packages", "build", "dist", "tests", "docs"})
_SCRIPTS: Final = (".sh", ".bash", ".sbatch", ".slurm", ".md", ".rst", ".txt", ".toml", ".mk")
_STARTS: Final = re.compile(
    r"^[\s$>`#-]*((?:[A-Z][A-Z0-9_]*=\S+ +)*(?:srun [^\n]*?)?"
    r"(?:torchrun|python3? -m (?:torch\.distributed\.run|paddle\.distributed\.launch)"
    r"|accelerate launch|deepspeed) [^\n`]*)",
    re.MULTILINE,
)
_QUERY_LIMIT_S: Final = 10.0

_IMPORTS: Final[Mapping[str, str]] = {
    "deepspeed": r"^\s*(?:import|from) deepspeed\b",
    "lightning": r"^\s*(?:import|from) (?:pytorch_)?lightning\b",
    "huggingface": r"^\s*from (?:transformers|trl)\b[^#]*\b\w*Trainer\b",
    "accelerate": r"^\s*(?:import|from) accelerate\b",
    "paddle": r"^\s*(?:import|from) paddle\b",
    "jax": r"^\s*(?:import|from) jax\b",
    "torchrun": r"^\s*(?:import|from) torch\b",
}
"""How scripts tell by which system they are read: the first that fits."""
PROGRAMS: Final[Mapping[str, str]] = {
    "torchtitan": "torchtitan",
    "pretrain_gpt": "megatron",
    "litgpt": "litgpt",
    "nemo_automodel": "nemo_automodel",
    "maxtext": "maxtext",
}
"""The programs of systems that ship, by a part of their names."""
_STEPS_ARE_PRINTED: Final = re.compile(r"StepLog|dlperf step rank=")


class Machine(Struct, frozen=True, kw_only=True):
    """What there is to train on."""

    gpus: int = 0
    """Of this machine."""
    has_slurm: bool = False
    in_allocation: bool = False
    gpus_of_nodes: int = 0
    """Of a node of the Slurm cluster, where that says it."""
    cluster: str = ""
    """What Slurm calls the cluster."""


def look_at_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """Ask the machine's own tools."""
    nodes = _output_of("sinfo", "-h", "-o", "%G")
    gres = re.findall(r"gpu:(?:[^:\s,(]+:)?([0-9]+)", nodes)
    in_allocation = "SLURM_JOB_ID" in environment
    found = Look().result(time.monotonic() + _QUERY_LIMIT_S)
    return Machine(
        gpus=len(found["ids"]),
        has_slurm=bool(nodes.strip()) or in_allocation,
        in_allocation=in_allocation,
        gpus_of_nodes=max(map(int, gres), default=0),
        cluster=environment.get("SLURM_CLUSTER_NAME", ""),
    )


def _output_of(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603 - one of the fixed commands above
            command, capture_output=True, text=True, timeout=_QUERY_LIMIT_S, check=False
        )
        return done.stdout if done.returncode == 0 else ""
    return ""


# --------------------------------------------------------------------------- the repository


class FoundCommand(Struct, frozen=True):
    """A training command that stands in a file."""

    text: str
    place: str


def commands_below(folder: Path) -> list[FoundCommand]:
    """Find what starts a training by a launcher, in scripts and documents; the first ones first."""
    found = []
    for file in _files(folder):
        if file.suffix not in _SCRIPTS and file.name != "Makefile":
            continue
        text = _text(file).replace("\\\n", " ")
        for match in _STARTS.finditer(text):
            line = " ".join(match[1].split()).rstrip("`&; ")
            place = f"{file.relative_to(folder)}:{text.count(chr(10), 0, match.start(1)) + 1}"
            found.append(FoundCommand(line, place))
    return found


def system_of_script(script: str | None, folder: Path) -> str | None:
    """Say which system that ships reads what a script prints, by its name and its imports."""
    if script is None:
        return None
    for part, system in PROGRAMS.items():
        if part in script:
            return system
    text = _source(script, folder)
    return _system_of_text(text) if text is not None else None


def is_program_of(system: str, script: str | None) -> bool:
    """Tell whether a script is the program of a system that ships, by its name."""
    return script is not None and any(
        part in script and system == name for part, name in PROGRAMS.items()
    )


def prints_steps(script: str | None, folder: Path) -> bool:
    """Tell whether a script has the package print its steps already."""
    text = _source(script, folder) if script is not None else None
    return text is not None and _STEPS_ARE_PRINTED.search(text) is not None


def systems_below(folder: Path) -> dict[str, str]:
    """Say which systems read the trainings of a folder, by its scripts and what it requires."""
    found: dict[str, str] = {}
    for file in _files(folder):
        if file.suffix == ".py":
            text = _text(file)
            system = _system_of_text(text) if "__main__" in text or "argparse" in text else None
            if system is not None and system != "torchrun":
                found.setdefault(system, f"{file.relative_to(folder)} imports it")
        elif file.name == "pyproject.toml" or file.match("requirements*.txt"):
            for system, name in (
                ("torchtitan", "torchtitan"),
                ("lightning", "lightning"),
                ("deepspeed", "deepspeed"),
                ("huggingface", "transformers"),
            ):
                if re.search(rf"(?:^|[\"'\s]){name}\b", _text(file), re.MULTILINE):
                    found.setdefault(system, f"{file.relative_to(folder)} requires it")
    return found


def is_installed(module: str) -> bool:
    """Tell whether this interpreter has a module, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _system_of_text(text: str) -> str | None:
    for system, pattern in _IMPORTS.items():
        if re.search(pattern, text, re.MULTILINE):
            return system
    return None


def _source(script: str, folder: Path) -> str | None:
    module = script.replace(".", "/")
    for name in (script, f"{module}.py", f"{module}/__main__.py"):
        file = folder / name
        if file.suffix == ".py" and file.is_file():
            return _text(file)
    return None


def _files(folder: Path) -> Iterator[Path]:
    """List some thousand files of a repository, the topmost first, but not what is installed."""
    left = _FILES
    folders = [folder]
    while folders and left:
        here = folders.pop(0)
        try:
            entries = sorted(here.iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _PASSED_BY or entry.is_symlink():
                continue
            if entry.is_dir():
                if not (entry / "pyvenv.cfg").exists():
                    folders.append(entry)
            elif left:
                left -= 1
                yield entry


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _LARGEST:
            return ""
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

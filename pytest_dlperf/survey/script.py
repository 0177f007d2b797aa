"""What a training script tells by its name and its imports: which system reads what it prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final


def _imported(modules: str) -> str:
    """Make the expression for an import, alone on its line or behind others."""
    return rf"(?:^|;)[ \t]*(?:from\s+|import\s+(?:[^#;\n]*,\s*)?)(?:{modules})\b"


_IMPORTS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(expression, re.MULTILINE)
    for name, expression in {
        "deepspeed": _imported("deepspeed"),
        "lightning": _imported("(?:pytorch_)?lightning"),
        "huggingface": _imported("transformers|trl")
        + r"[^#]*\b\w*Trainer\b|\btransformers\.\w*Trainer\(",
        "accelerate": _imported("accelerate"),
        "paddle": _imported("paddle"),
        "jax": _imported("jax"),
        "torchrun": _imported("torch"),
    }.items()
}
"""How scripts tell by which system they are read: the first that fits."""
_FABRIC: Final = re.compile(r"\bFabric\b(?![\s\S]*\b(?:Trainer|LightningCLI)\b)")
"""Lightning without its loop."""
_IS_SCRIPT: Final = re.compile(r"__main__|argparse|\.fit\(|\.train\(\)")
_NO_CODE: Final = re.compile(r"(\"\"\"|\'\'\')[\s\S]*?\1|\\\n")
"""Docstrings, and ends of lines that go on."""
_DOCUMENTS: Final = (".md", ".rst", "")
PROGRAMS: Final[Mapping[str, str]] = {
    "torchtitan": "torchtitan",
    "pretrain_gpt": "megatron",
    "litgpt": "litgpt",
    "nemo_automodel": "nemo_automodel",
    "maxtext": "maxtext",
}
"""The programs of systems that ship, by a part of their names."""
_STEPS_ARE_PRINTED: Final = re.compile(r"StepLog|dlperf step rank=")
_LAUNCHED: Final[Mapping[str, str]] = {
    "accelerate": "accelerate launch --num_processes {devices} {script}",
    "deepspeed": "deepspeed --num_gpus {devices} {script}",
    "jax": "python {script}",
    "paddle": "python -m paddle.distributed.launch --nproc_per_node={devices} {script}",
}
_TORCHRUN: Final = "torchrun --nproc-per-node {devices} {script}"


def is_empty(folder: Path) -> bool:
    """Whether a folder has no file but hidden ones and documents such as a README."""
    files = (one for one in folder.iterdir() if not one.name.startswith("."))
    return all(one.is_file() and one.suffix in _DOCUMENTS for one in files)


def only_script_in(folder: Path) -> str | None:
    """Find the one script in a folder that trains with a known trainer."""
    names = [file.name for file in folder.glob("*.py") if _IS_SCRIPT.search(_text(file))]
    found = [name for name in names if system_of_script(name, folder) not in (None, "torchrun")]
    return found[0] if len(found) == 1 else None


def start_of(script: str, folder: Path, devices: int) -> str:
    """Write the command that starts a script on so many devices."""
    start = _LAUNCHED.get(system_of_script(script, folder) or "", _TORCHRUN)
    return start.format(devices=devices, script=shlex.quote(script))


def system_of_script(script: str, folder: Path) -> str | None:
    """Say which system that ships reads what a script prints, by its name and its imports."""
    if known := program_of(script):
        return known
    text = _NO_CODE.sub(" ", _source(script, folder))
    found = next((name for name, each in _IMPORTS.items() if each.search(text)), None)
    return "torchrun" if found == "lightning" and _FABRIC.search(text) else found


def program_of(script: str) -> str | None:
    """Name the system that ships whose program a script is, by a part of its name."""
    return next((name for part, name in PROGRAMS.items() if part in script), None)


def prints_steps(script: str, folder: Path) -> bool:
    """Tell whether a script has the package print its steps already."""
    return _STEPS_ARE_PRINTED.search(_source(script, folder)) is not None


def _source(script: str, folder: Path) -> str:
    """Read a script or a module; nothing of what is no file of Python."""
    module = script.replace(".", "/")
    files = (folder / name for name in (script, f"{module}.py", f"{module}/__main__.py"))
    return next((_text(file) for file in files if file.suffix == ".py" and file.is_file()), "")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

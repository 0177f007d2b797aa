"""What a repository tells of a training: which script trains, with what, how it is started."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.formats.meanings import vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FILES: Final = 2000
_LARGEST: Final = 1 << 18
_MODULES: Final = 50
_PASSED_BY: Final = frozenset({"node_modules", "site-packages", "build", "dist", "tests", "docs"})
_SCRIPTS: Final = (".sh", ".bash", ".sbatch", ".slurm", ".md", ".rst", ".txt", ".toml", ".mk")
_STARTS: Final = re.compile(
    r"^[\s$>`#-]*((?:[A-Z][A-Z0-9_]*=\S+ +)*(?:srun [^\n]*?)?"
    r"(?:torchrun|python3? -m (?:torch\.distributed\.run|paddle\.distributed\.launch)"
    r"|accelerate launch|deepspeed) [^\n`]*)",
    re.MULTILINE,
)


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
_OWN_LOOPS: Final = ("lightning", "huggingface")
"""Systems with a loop of their own: a script that imports a module which uses one has no other."""
_FABRIC: Final = re.compile(r"\bFabric\b(?![\s\S]*\b(?:Trainer|LightningCLI)\b)")
"""Lightning without its loop."""
_LOCAL_IMPORT: Final = re.compile(r"^\s*(?:from|import)\s+(\.?[\w.]+)", re.MULTILINE)
_IS_SCRIPT: Final = re.compile(
    r"__main__|argparse|\.fit\(|\.train\(\)"
    # A loop of the module itself, not of a function or class.
    r"|^(?:for|while|with|if)\b.*(?:\n(?:[ \t].*)?)*?\n[ \t]+.*\.backward\(",
    re.MULTILINE,
)
_NO_CODE: Final = re.compile(r"(\"\"\"|\'\'\')[\s\S]*?\1|\\\n")
"""Docstrings, and ends of lines that go on."""
_DOCUMENTS: Final = (".md", ".rst", "")
_LIKELY: Final = re.compile(r"(?:pre)?train|fine_?tune|fit|sft|main|run", re.IGNORECASE)
PROGRAMS: Final[Mapping[str, str]] = {
    "torchtitan": "torchtitan",
    "pretrain_gpt": "megatron",
    "litgpt": "litgpt",
    "nemo_automodel": "nemo_automodel",
    "maxtext": "maxtext",
}
"""The programs of systems that ship, by a part of their names."""
_STEPS_ARE_PRINTED: Final = re.compile(r"StepLog|dlperf step rank=")
_RANDOM_DATA: Final = re.compile(
    r"\b(?:torch|np|numpy|random|rng|generator)\.(?:random\.)?(?:randn?|randint|normal)\("
    r"|\b(?:synthetic|dummy|fake|mock)_?(?:data|batch|input)",
    re.IGNORECASE,
)
_LAUNCHED: Final[Mapping[str, str]] = {
    "accelerate": "accelerate launch --num_processes {devices} {script}",
    "deepspeed": "deepspeed --num_gpus {devices} {script}",
    "jax": "python {script}",
    "paddle": "python -m paddle.distributed.launch --nproc_per_node={devices} {script}",
}
_TORCHRUN: Final = "torchrun --nproc-per-node {devices} {script}"
_DEFAULT: Final = re.compile(
    r"add_argument\(\s*(?:[\"']-\w[\"']\s*,\s*)?[\"'](--[\w-]+)[\"'][^)]*?\bdefault\s*=\s*([0-9]+)\b"
)
_OPTIONS: Final = ("global_batch", "batch_per_replica", "sequence_length", "steps")


class FoundCommand(Struct, frozen=True):
    """A training command that stands in a file."""

    text: str
    place: str


class FoundScript(Struct, frozen=True):
    """A script that trains."""

    path: str
    system: str
    """The system that ships and reads what it prints."""
    source: str

    def command(self, devices: int) -> str:
        """Write what starts it here, with the batch, length and steps that are its defaults."""
        known = {name for fact in _OPTIONS for name in vocabulary().options(fact)}
        options = [
            f"{option} {value}"
            for option, value in dict(_DEFAULT.findall(self.source)).items()
            if option.lstrip("-").replace("-", "_") in known
        ]
        start = _LAUNCHED.get(self.system, _TORCHRUN).format(devices=devices, script=self.path)
        return " ".join([start, *options])

    def number(self, fact: str) -> tuple[str, int] | None:
        """Find the number that a fact is given in the script, and its name there."""
        for name in vocabulary().options(fact):
            found = re.search(rf"\b{name}\s*=\s*([0-9]{{1,9}})\b", self.source)
            if found is not None and int(found[1]):
                return name, int(found[1])
        return None

    def precision(self) -> str | None:
        """Find the word for the precision that the script gives its trainer."""
        names = "|".join(vocabulary().options("precision"))
        found = re.search(rf"\b(?:{names})\s*=\s*[\"']([\w-]+)[\"']", self.source)
        flag = re.search(r"\b(bf16|fp16)\s*=\s*True\b", self.source)
        return found[1] if found is not None else flag[1] if flag is not None else None


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


def scripts_below(folder: Path) -> list[FoundScript]:
    """Find scripts that train, those first whose names say so, then the topmost."""
    found = []
    for file in _files(folder):
        text = _text(file) if file.suffix == ".py" else ""
        path = str(file.relative_to(folder))
        system = system_of_script(path, folder) if _IS_SCRIPT.search(text) else None
        # Many programs import torch, and few of them train.
        if system is not None and (system != "torchrun" or ".backward(" in text):
            found.append(FoundScript(path, system, text))
    return sorted(found, key=lambda one: not _LIKELY.match(one.path.rpartition("/")[2]))


def requirements_below(folder: Path) -> dict[str, str]:
    """Say which systems that ship are required here, and by which file."""
    found: dict[str, str] = {}
    for file in _files(folder):
        if file.name == "pyproject.toml" or file.match("requirements*.txt"):
            for system, name in (
                ("torchtitan", "torchtitan"),
                ("lightning", "lightning"),
                ("deepspeed", "deepspeed"),
                ("huggingface", "transformers"),
            ):
                if re.search(rf"(?:^|[\"'\s]){name}\b", _text(file), re.MULTILINE):
                    found.setdefault(system, f"{file.relative_to(folder)} requires it")
    return found


def is_empty(folder: Path) -> bool:
    """Whether a folder has no file but hidden ones and documents such as a README."""
    return all(file.suffix in _DOCUMENTS for file in _files(folder))


def system_of_script(script: str | None, folder: Path) -> str | None:
    """Say which system that ships reads what a script prints, by its name and its imports."""
    if script is None:
        return None
    for part, system in PROGRAMS.items():
        if part in script:
            return system
    text = _source(script, folder)
    if text is None:
        return None
    found = _system_of_text(text)
    if found not in (None, "torchrun"):
        return found
    below = map(_system_of_text, _local_modules(text, (folder / script).parent, folder))
    return next((each for each in below if each in _OWN_LOOPS), found)


def is_program_of(system: str, script: str | None) -> bool:
    """Tell whether a script is the program of a system that ships, by its name."""
    return script is not None and any(
        part in script and system == name for part, name in PROGRAMS.items()
    )


def prints_steps(script: str | None, folder: Path) -> bool:
    """Tell whether a script has the package print its steps already."""
    text = _source(script, folder) if script is not None else None
    return text is not None and _STEPS_ARE_PRINTED.search(text) is not None


def draws_random_data(script: str | None, folder: Path) -> bool:
    """Tell whether a script trains on random data, as far as its text says."""
    text = _source(script, folder) if script is not None else None
    return text is not None and _RANDOM_DATA.search(text) is not None


def _system_of_text(text: str) -> str | None:
    text = _NO_CODE.sub(" ", text)
    found = next((name for name, each in _IMPORTS.items() if each.search(text)), None)
    return "torchrun" if found == "lightning" and _FABRIC.search(text) else found


def _local_modules(text: str, *folders: Path) -> Iterator[str]:
    """Yield the texts of modules of the repository that a text imports, and of those they do."""
    left, seen = [text], set[Path]()
    while left and len(seen) < _MODULES:
        for name in _LOCAL_IMPORT.findall(left.pop(0)):
            path = name.lstrip(".").replace(".", "/")
            ends = (f"{path}.py", f"{path}/__init__.py")
            files = (folder / end for folder in folders for end in ends)
            file = next((each for each in files if path and each.is_file()), None)
            if file is not None and file not in seen:
                seen.add(file)
                left.append(_text(file))
                yield left[-1]


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

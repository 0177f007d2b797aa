"""Systems that others extend: those that ship, and a file laid over another one.

A file with ``extends`` says only what differs from another one: a system that ships, by its name,
or a file, by its path from the one that names it. That may extend a further one.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import takewhile
from os.path import normpath
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from pytest_dlperf.config.launch_keys import STARTS
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import YamlFile

SHIPPED: Final = Path(__file__).parent.parent / "systems"
"""The folder of the systems that ship."""
EXTENDS: Final = "extends"
PRIVATE: Final = ("launch",)
"""Keys of a system file below which no value is quoted: it may be a secret."""


@cache
def shipped_systems() -> dict[str, Path]:
    """Find the system files that ship with the package, by name."""
    return {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}


def is_trainer(name: str) -> bool:
    """Whether a system that ships is of trainings; else it is of probes, which have no steps."""
    text = shipped_systems()[name].read_text(encoding="utf-8")
    return re.search(r"^(?:extends|(?:# +)?unit|(?:# +)?window):", text, re.MULTILINE) is not None


def comment_of(name: str) -> tuple[str, str]:
    """Split the comment of a system that ships: its text, and the example of a user's file."""
    lines = shipped_systems()[name].read_text(encoding="utf-8").splitlines()
    comment = (line[1:].removeprefix(" ") for line in takewhile(lambda it: it[:1] == "#", lines))
    prose, _, example = "\n".join(comment).partition("\n\n  ")
    return prose, dedent(f"  {example}\n")


def lay_over_bases(file: YamlFile, *extending: Path) -> None:
    """Lay a system file over those that it extends; it is itself one of those of ``extending``."""
    if not isinstance(file.value, dict) or file.value.get(EXTENDS) is None:
        return
    name = file.read(str, (EXTENDS,))
    base, mistake = _base(file.file, name)
    extending = (*extending, file.file.resolve())
    if base.resolve() in extending:
        mistake = f"{name!r} extends this file in turn"
    if mistake:
        file.error((EXTENDS,), mistake)
        file.check()
    below = YamlFile(base, private=PRIVATE)
    below.read(dict[str, Any])
    lay_over_bases(below, *extending)
    launch, of_base = file.value.get("launch"), below.value.get("launch")
    if isinstance(launch, dict) and isinstance(of_base, dict):
        # What is started here replaces what the base starts, by whichever key each says it.
        starts = [key for key in STARTS if launch.get(key) is not None]
        for key in STARTS if starts else ():
            if key not in starts:
                of_base.pop(key, None)
    file.lay_over(below)


def _base(file: Path, name: str) -> tuple[Path, str]:
    """Find the file that a system file extends, or say why there is none."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        base = Path(normpath(file.parent / name))
        return base, "" if base.is_file() else f"there is no file {base}"
    shipped = shipped_systems()
    by_path = f"A file is named by its path, as in ../{name}.yaml{nearest(name, shipped)}"
    unknown = f"unknown system {name!r}; those that ship are {', '.join(shipped)}. {by_path}"
    return shipped.get(name, Path()), "" if name in shipped else unknown

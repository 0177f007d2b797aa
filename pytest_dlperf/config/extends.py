"""Systems that others extend: those that ship, and a file laid over another one.

A file with ``extends`` says only what differs from another one: a system that ships, by its name,
or a file, by its path from the one that names it. That may extend a further one.
"""

from __future__ import annotations

import re
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


def shipped_systems() -> dict[str, Path]:
    """Find the system files that ship with the package, by name."""
    return {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}


def is_trainer(name: str) -> bool:
    """Whether a system that ships is of trainings; else it is of probes, which have no steps."""
    text = shipped_systems()[name].read_text(encoding="utf-8")
    base = re.search(r"^extends: (\w+)$", text, re.MULTILINE)
    if base is not None and is_trainer(base[1]):
        return True
    return re.search(r"^(?:# +)?(?:unit|window):", text, re.MULTILINE) is not None


def comment_of(name: str) -> tuple[str, str]:
    """Split the comment of a system that ships: its text, and the example of a user's file."""
    lines = shipped_systems()[name].read_text(encoding="utf-8").splitlines()
    comment = (line[1:].removeprefix(" ") for line in takewhile(lambda it: it[:1] == "#", lines))
    prose, _, example = "\n".join(comment).partition("\n\n  ")
    return prose, dedent(f"  {example}\n")


def extended(own: YamlFile) -> YamlFile:
    """Lay a system file over those that it extends.

    Raises:
        YamlError: One of them cannot be found or read, or extends another in turn.
    """
    seen = [own.file.resolve()]
    layers = [own]
    while (base := _base(layers[-1])) is not None:
        if base.resolve() in seen:
            layers[-1].error((EXTENDS,), f"{layers[-1].value[EXTENDS]!r} extends this file in turn")
            layers[-1].check()
        seen.append(base.resolve())
        layers.append(YamlFile(base, private=PRIVATE))
        if not isinstance(layers[-1].value, dict):
            layers[-1].read(dict)
    whole = layers.pop()
    while layers:
        over = layers.pop()
        _replace_start(over.value.get("launch"), whole.value.get("launch"))
        over.lay_over(whole)
        whole = over
    return whole


def _replace_start(launch: Any, of_base: Any) -> None:
    """Have what a file starts replace what its base starts, by whichever key each says it."""
    if isinstance(launch, dict) and isinstance(of_base, dict):
        starts = [key for key in STARTS if launch.get(key) is not None]
        for key in STARTS if starts else ():
            if key not in starts:
                of_base.pop(key, None)


def _base(file: YamlFile) -> Path | None:
    """Find the file that a system file extends, if any."""
    if not isinstance(file.value, dict) or file.value.get(EXTENDS) is None:
        return None
    name = file.read(str, (EXTENDS,))
    if "/" in name or name.endswith((".yaml", ".yml")):
        base = Path(normpath(file.file.parent / name))
        if base.is_file():
            return base
        file.error((EXTENDS,), f"there is no file {base}")
        file.check()
    shipped = shipped_systems()
    if name not in shipped:
        file.error(
            (EXTENDS,),
            f"unknown system {name!r}; those that ship are {', '.join(shipped)}. A file is "
            f"named by its path, as in ../{name}.yaml{nearest(name, shipped)}",
        )
        file.check()
    return shipped[name]

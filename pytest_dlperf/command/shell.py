"""What subcommands share: types of arguments, and styled output."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TextIO

from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import named
from pytest_dlperf.report.printing import plain, printable

PYTEST_ARGUMENTS: Final = """\
Options, ini file and plugins are those of pytest in this folder. Arguments after -- go to pytest:
a folder whose conftest.py adds systems, -c FILE, -p PLUGIN (default: the folder bench_tests, if it
exists).
"""

_CODES: Final = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
_MARKUP: Final = re.compile(r"(\033\[(?:0|1|3[123]|1;3[123])m)")
_USUAL_WIDTH: Final = 80
_MIN_WIDTH: Final = 40
_NAMES_SHOWN: Final = 8


# ------------------------------------------------------------------------- arguments


def text_argument(text: str) -> str:
    """Read text that is not empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give a value or leave it out")
    return text


def path_argument(text: str) -> str:
    """Read the path of a file or folder, existing or not; ``~`` is the user's home."""
    return os.path.expanduser(text_argument(text))  # noqa: PTH111 - pathlib refuses unknown users


def folder_argument(text: str) -> str:
    """Read the path of an existing folder."""
    folder = path_argument(text)
    if not _is_folder(folder):
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return folder


def file_argument(text: str) -> str:
    """Read the path of a file, existing or not."""
    file = path_argument(text)
    if _is_folder(file):
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file")
    if file == "-":
        raise argparse.ArgumentTypeError("'-' is no file; name one")
    return file


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - pathlib's raises where a name is too long


def integer_argument(text: str) -> int:
    """Read an integer from 1 on."""
    # int() refuses thousands of digits with another error.
    is_number = text.isascii() and text.isdigit() and len(text) <= 9  # noqa: PLR2004
    if not is_number or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer ≥ 1")
    return int(text)


_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "cases": {
        "nargs": "*",
        "type": text_argument,
        "metavar": "CASE",
        "help": "ids of cases, in which * stands for anything (default: all)",
    },
    "--cluster": {"type": text_argument, "metavar": "NAME", "help": "this cluster (default: all)"},
    "--metric": {"type": text_argument, "metavar": "NAME", "help": "this metric (default: all)"},
    "--history": {
        "type": file_argument,
        "metavar": "FILE",
        "help": "the database (default: that of sessions in this folder)",
    },
    "--markdown": {"type": file_argument, "metavar": "FILE", "help": "write it as Markdown too"},
    "--baselines": {"type": folder_argument, "metavar": "DIR", "help": "folder of the clusters"},
    "--systems": {
        "action": "append",
        "type": folder_argument,
        "metavar": "DIR",
        "help": "folder of system files; may be given several times",
    },
}


def add(parser: argparse.ArgumentParser, *names: str, **other: Any) -> None:
    """Add arguments that several commands have; ``other`` replaces what the table says."""
    for name in names:
        parser.add_argument(name, **{**_ARGUMENTS[name], **other})


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Add the options that name folders of baselines and of systems."""
    add(parser, "--baselines", "--systems")


def chosen(names: Iterable[str], patterns: Iterable[str | None], nothing: str) -> set[str]:
    """Choose the names that match a pattern; all without patterns.

    Raises:
        UsageError: A pattern matches none; the message begins with ``nothing``.
    """
    known, wanted = dict.fromkeys(names), [pattern for pattern in patterns if pattern]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in known):
            hint = nearest(pattern, known) or "; * stands for anything, as in *-1n8g"
            there_are = named(sorted(known), _NAMES_SHOWN) if known else "none"
            raise UsageError(f"{nothing} {pattern!r}; there are: {there_are}{hint}")
    matched = {name for name in known if any(fnmatchcase(name, each) for each in wanted)}
    return matched if wanted else set(known)


# ------------------------------------------------------------------------------ text


def write_report(option: str, file: Path, text: str) -> None:
    """Write the file that ``option`` names.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        write_whole(file, text)
    except OSError as error:
        raise UsageError(f"{option}: {printable(str(file))}: {error.strerror or error}") from error


class Style:
    """Styles text for a stream."""

    def __init__(self, stream: TextIO) -> None:
        is_bare = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._is_coloured = stream.isatty() and not is_bare
        # A file does not have the width of the terminal, unless the user sets COLUMNS.
        usual = (_USUAL_WIDTH, 24)
        width = (
            shutil.get_terminal_size(usual).columns
            if stream.isatty() or os.environ.get("COLUMNS")
            else _USUAL_WIDTH
        )
        self.width = max(width, _MIN_WIDTH)

    def __call__(self, text: str, *markup: str) -> str:
        """Return the text with terminal markup, such as ``bold``, if it is coloured."""
        if not self._is_coloured or not markup:
            return text
        return f"\033[{';'.join(_CODES[name] for name in markup)}m{text}\033[0m"

    def show(self, lines: Iterable[str]) -> None:
        """Print lines; of escape sequences only the markup of this class gets through."""
        for line in lines:
            if self._is_coloured:
                texts = _MARKUP.split(line)
                texts[::2] = map(plain, texts[::2])
                print("".join(texts))  # noqa: T201 - the one place where commands print
            else:
                print(plain(line))  # noqa: T201 - as above

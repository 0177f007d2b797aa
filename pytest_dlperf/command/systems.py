"""``pytest-dlperf systems``: lists the systems that come with the package, for ``extends``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style
from pytest_dlperf.config.extends import comment_of, shipped_systems

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "List the systems that come with the package, or show the file of one. A system file of "
        "your own builds on one with 'extends: NAME', and holds only what differs."
    )
    parser.add_argument(
        "name",
        nargs="?",
        choices=list(shipped_systems()),
        metavar="NAME",
        help="show the file of this system (default: list all)",
    )


def run(options: argparse.Namespace) -> int:
    """List the systems, or show one."""
    systems = shipped_systems()
    if options.name is not None:
        print(systems[options.name].read_text(encoding="utf-8"), end="")  # noqa: T201 - it prints
        return FINE
    style = Style(sys.stdout)
    widest = max(map(len, systems))
    style.show(f"{style(f'{name:<{widest}}', 'bold')}  {summary(name)}" for name in systems)
    return FINE


def summary(name: str) -> str:
    """Return the first sentence of the comment of a shipped system."""
    return " ".join(comment_of(name)[0].split()).partition(". ")[0]

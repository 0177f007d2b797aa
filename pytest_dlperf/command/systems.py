"""``pytest-dlperf systems``: the systems that come with the package, for ``extends``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style
from pytest_dlperf.config.extending import explained, shipped_systems

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.description = (
        "List the systems that come with the package, or show the file of one. A system file of "
        "one's own builds on one by 'extends: NAME' and says only what differs."
    )
    parser.add_argument(
        "name",
        nargs="?",
        choices=list(shipped_systems()),
        metavar="NAME",
        help="the system whose file is shown (default: list all)",
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
    """Return what a system that ships is for: the first sentence of its comment."""
    return " ".join(explained(name)[0].split()).partition(". ")[0]

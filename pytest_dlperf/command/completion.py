"""``pytest-dlperf completion``: prints a script for completion in a shell."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.main import FINE, whole_parser
from pytest_dlperf.command.shell import file_argument, folder_argument, path_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHELLS: Final = {
    "bash": 'eval "$(pytest-dlperf completion bash)" in ~/.bashrc',
    "zsh": "pytest-dlperf completion zsh >~/.zfunc/_pytest-dlperf, where ~/.zshrc has "
    "fpath+=~/.zfunc before compinit",
    "fish": "pytest-dlperf completion fish >~/.config/fish/completions/pytest-dlperf.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Print a script with which a shell completes subcommands, options, names of systems, files "
        "and folders. " + " ".join(f"For {shell}: {how}." for shell, how in _SHELLS.items())
    )
    parser.add_argument("shell", choices=list(_SHELLS), help="the shell")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    parser = whole_parser()
    for action in _actions(parser):
        if action.type is folder_argument:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined] # what shtab looks for
        elif action.type in (file_argument, path_argument):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell))  # noqa: T201 - a command prints
    return FINE


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its subcommands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        yield action
        if isinstance(action.choices, dict):
            for one in action.choices.values():
                if isinstance(one, argparse.ArgumentParser):
                    yield from _actions(one)

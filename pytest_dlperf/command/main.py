"""The entry point of ``pytest-dlperf``: runs the module of a subcommand, and imports no other."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pytest_dlperf.model.errors import DlperfError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

FINE: Final = 0
FAULTS: Final = 1
"""Mistakes were found."""
MISUSE: Final = 2
"""The command was misused, or could not run."""

COMMANDS: Final[Mapping[str, str]] = {
    "init": "start a suite in this folder",
    "systems": "list the systems that come with the package",
    "keys": "show the keys of system files, cluster.yaml and baselines",
    "read": "identify a log, show what it holds, and what to do next",
    "check": "find mistakes in system files, cluster.yaml and baselines",
    "baselines": "show accepted numbers",
    "compare": "compare two results files",
    "bisect": "find the commit that changed a number",
    "why": "try apart what differs tonight, until it is known what changed a number",
    "history": "fill, show and check the database of sessions",
    "notify": "send what a results file says, by chat, mail or comment",
}
"""Subcommands with their help. Each is a module with two functions: ``add_arguments(parser)``, and
``run(options)``, which returns the exit code.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 faults were found, 2 misuse."""
    with _ended_by_interrupts():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(given: list[str]) -> int:
    _escape_unencodable_output()
    own, for_pytest = _split(given)
    options = _parser([word for word in own if word in COMMANDS][:1]).parse_args(own)
    options.for_pytest = for_pytest
    try:
        code: int = _module(options.command).run(options)
        sys.stdout.flush()
    except DlperfError as error:
        from pytest_dlperf.night.texts import plain

        print(f"pytest-dlperf {options.command}: {plain(str(error))}", file=sys.stderr)  # noqa: T201
        return MISUSE
    except BrokenPipeError:
        # The reader has gone, as head does. Without this Python complains again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULTS
    return code


def _module(command: str) -> Any:
    return import_module(f"pytest_dlperf.command.{command}")


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Let SIGINT end the process: there is no state to clean up.

    Python's exception gets lost if it comes while a module is imported.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # it was started with SIGINT ignored
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _escape_unencodable_output() -> None:
    """Print characters that the terminal's encoding lacks with backslashes."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser(chosen: Collection[str]) -> argparse.ArgumentParser:
    """Build the parser; only the chosen subcommands get their arguments."""
    parser = _Parser(
        prog="pytest-dlperf",
        description="Start a suite, and manage its baselines and results.",
        epilog="Exit codes: 0 fine, 1 faults were found, 2 the command was misused.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        if name in chosen:
            _module(name).add_arguments(command)
    return parser


class _Parser(argparse.ArgumentParser):
    """Prints errors in plain text, whatever the arguments hold, with the nearest of the choices."""

    def error(self, message: str) -> NoReturn:
        from pytest_dlperf.files.yamlfile import nearest
        from pytest_dlperf.night.texts import plain

        choice = re.search(r"invalid choice: '(.*?)'( \(choose from (.*)\))$", message)
        if choice is not None:
            near = nearest(choice[1], choice[3].replace("'", "").split(", "))
            message = message.removesuffix(choice[2]) + near + choice[2]
        super().error(plain(message))


class _Version(argparse.Action):
    """Shows the version, which is looked up only now."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002 - argparse's own name
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print("pytest-dlperf", version("pytest-dlperf"))  # noqa: T201 - a command prints
        parser.exit()

"""The entry of ``pytest-dlperf``: finds the subcommand and hands over to its module.

Only the chosen module is imported, so that help comes at once.
"""

from __future__ import annotations

import argparse
import os
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
"""The command could not do what was asked for."""

COMMANDS: Final[Mapping[str, str]] = {
    "init": "start a suite in this folder, of what is found there",
    "systems": "list the systems that ship, to extend",
    "read": "say what a log is, what it holds, and what to do with it",
    "check": "find mistakes in system files, cluster.yaml and baselines",
    "baselines": "delete accepted numbers",
    "qualify": "show which losses the gate sees, and how often it is wrong",
    "compare": "hold two results files side by side",
    "history": "fill the database of all sessions, and show what it holds",
    "notify": "tell what a results file says, by chat, mail or comment",
    "completion": "print the script by which a shell completes this command",
}
"""The subcommands, with a line of help. Each is a module of this package with two functions:
``add_arguments(parser)`` declares what it takes, ``run(options)`` does it and gives the exit code.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code: 0 fine, 1 faults were found, 2 misuse."""
    with _ended_by_interrupts():
        return _run(list(sys.argv[1:] if arguments is None else arguments))


def _run(given: list[str]) -> int:
    _write_whatever_names_hold()
    own, for_pytest = _split(given)
    options = _parser([word for word in own if word in COMMANDS][:1]).parse_args(own)
    options.for_pytest = for_pytest
    try:
        code: int = _module(options.command).run(options)
        sys.stdout.flush()
    except DlperfError as error:
        from pytest_dlperf.reports.numbers import plain

        print(f"pytest-dlperf {options.command}: {plain(str(error))}", file=sys.stderr)  # noqa: T201
        return MISUSE
    except BrokenPipeError:
        # The reader has gone, as head does. Python would complain again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULTS
    return code


def _module(command: str) -> Any:
    return import_module(f"pytest_dlperf.command.{command}")


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Default SIGINT: there is no state to clean up.

    Python's own way, an exception, gets lost where it strikes while a module is imported.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # whoever started this wants it ignored
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _write_whatever_names_hold() -> None:
    """Write characters that the terminal's encoding lacks with backslashes, without a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def whole_parser() -> argparse.ArgumentParser:
    """Build the parser with what all subcommands take."""
    return _parser(COMMANDS)


def _parser(chosen: Collection[str]) -> argparse.ArgumentParser:
    """Build the parser; of the subcommands only the chosen ones know their arguments."""
    parser = _Parser(
        prog="pytest-dlperf",
        description="Start a suite, and look after its baselines and results.",
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
    """Tells of misuse in plain text, whatever was given."""

    def error(self, message: str) -> NoReturn:
        from pytest_dlperf.reports.numbers import plain

        super().error(plain(message))


class _Version(argparse.Action):
    """Shows the version; it is looked up when somebody asks."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002 - argparse's own name
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print("pytest-dlperf", version("pytest-dlperf"))  # noqa: T201 - a command prints
        parser.exit()

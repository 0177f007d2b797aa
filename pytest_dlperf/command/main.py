"""The entry point of ``pytest-dlperf``: runs the module of a subcommand, and imports no other."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

from pytest_dlperf.model.errors import DlperfError

FINE: Final = 0
FAULTS: Final = 1
"""Mistakes were found."""
MISUSE: Final = 2
"""The command was misused, or could not run."""
_INTERRUPTED: Final = 128 + signal.SIGINT  # as shells say it

COMMANDS: Final[Mapping[str, str]] = {
    "init": "start a suite in this folder",
    "systems": "list the systems that come with the package, or the keys of all files",
    "read": "identify a log, show what it holds, and what to do next",
    "check": "find mistakes in system files, cluster.yaml and baselines",
    "baselines": "show accepted numbers",
    "compare": "compare two results files",
    "bisect": "find the commit, or what else differs, that changed a number",
    "history": "fill, show and export the database of sessions",
    "notify": "send what a results file says, by chat, mail or comment",
}
"""Subcommands with their help. Each is a module with two functions: ``add_arguments(parser)``, and
``run(options)``, which returns the exit code.
"""
EXAMPLES: Final[Mapping[str, str]] = {
    "init": "init --log train.log",
    "systems": "systems --keys system.launch",
    "read": "read train.log",
    "check": "check --cluster lab-h100",
    "baselines": "baselines show '*-4n8g' --metric throughput",
    "compare": "compare old.json new.json --fail-on worse --tolerance 2",
    "bisect": "bisect v1.4..main --case paddle-resnet50-fp32-b128-1n8g",
    "history": "history show '*-4n8g'",
    "notify": "notify results.json --to apprise=SLACK_WEBHOOK",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 fine, 1 faults were found, 2 misuse."""
    own = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal's encoding lacks are printed with backslashes.
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")
    for_pytest: list[str] = []
    if "--" in own:
        at = own.index("--")
        own, for_pytest = own[:at], own[at + 1 :]
    options = _parser([word for word in own if word in COMMANDS][:1]).parse_args(own)
    options.for_pytest = for_pytest
    try:
        code: int = _module(options.command).run(options)
        sys.stdout.flush()
    except DlperfError as error:
        from pytest_dlperf.report.printing import plain

        print(f"pytest-dlperf {options.command}: {plain(str(error))}", file=sys.stderr)  # noqa: T201
        return MISUSE
    except BrokenPipeError:
        # The reader has gone, as head does. Without this Python complains again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULTS
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _module(command: str) -> Any:
    return import_module(f"pytest_dlperf.command.{command}")


def _parser(chosen: Collection[str]) -> argparse.ArgumentParser:
    """Build the parser; only the chosen subcommands get their arguments."""
    parser = argparse.ArgumentParser(
        prog="pytest-dlperf",
        description="Start a suite, and manage its baselines and results.",
        epilog="Exit codes: 0 fine, 1 faults were found, 2 the command was misused.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('pytest-dlperf')}"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        if name in chosen:
            _module(name).add_arguments(command)
            example = f"Example: pytest-dlperf {EXAMPLES[name]}."
            command.epilog = f"{example} {command.epilog or ''}"
    return parser

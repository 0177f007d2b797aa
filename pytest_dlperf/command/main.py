"""The entry of ``pytest-dlperf``: reads the command line and hands over to a subcommand.

Whatever costs an import waits until a subcommand has been chosen, so that help comes at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.outcome import FAULTS, MISUSE, MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DEFAULT_TRIALS: Final = 500
_FEWEST_TRIALS: Final = 100
_LONGEST_LABEL: Final = 40
_PYTEST_ARGUMENTS: Final = """\
Options, ini file and plugins are those of pytest in this folder. Arguments after -- go to pytest:
a folder whose conftest.py adds systems, -c FILE, -p PLUGIN. Without any, the folder bench_tests is
given to it, if there is one.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code: 0 fine, 1 faults were found, 2 misuse.

    Raises:
        SystemExit: With 2 when the command line is malformed, with 0 after help.
    """
    with _ended_by_interrupts():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    _write_whatever_names_hold()
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, for_pytest = _split(given)
    options = _parser().parse_args(own)
    options.for_pytest = for_pytest
    try:
        code = _chosen(options.command)(options)
        sys.stdout.flush()
    except MisuseError as error:
        print(f"pytest-dlperf {options.command}: {error}", file=sys.stderr)  # noqa: T201
        return MISUSE
    except BrokenPipeError:
        # The reader has gone, as head does. Python would complain again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULTS
    return code


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Have Ctrl-C end this process at once: it keeps nothing that would have to be put away.

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


def _chosen(command: str) -> Callable[[argparse.Namespace], int]:
    if command == "check":
        from pytest_dlperf.command.check import check

        return check
    if command == "compare":
        from pytest_dlperf.command.compare import compare

        return compare
    if command == "history":
        from pytest_dlperf.command.history import history

        return history
    from pytest_dlperf.command.qualify import qualify_cluster

    return qualify_cluster


def _write_whatever_names_hold() -> None:
    """Have names that the terminal's encoding lacks written with backslashes, not as a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and those after ``--``."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


# ------------------------------------------------------------------------ the command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pytest-dlperf",
        description="Look after baselines and results: nothing is launched, nothing is measured.",
        epilog="Exit codes: 0 fine, 1 faults were found, 2 the command was misused.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_check(commands)
    _add_qualify(commands)
    _add_compare(commands)
    _add_history(commands)
    return parser


class _Version(argparse.Action):
    """Shows the version; it is looked up when somebody asks."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002 - argparse's own name
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print("pytest-dlperf", version("pytest-dlperf"))  # noqa: T201 - a command prints
        parser.exit()


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="find mistakes in system files, cluster.yaml and baselines",
        description="Find mistakes in system files, in cluster.yaml and in baselines: YAML that "
        "cannot be read, entries without a case, cases without an entry, numbers that do not "
        "follow from their runs. Each is printed with its file and line.",
        epilog=_PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--cluster",
        action="append",
        type=_not_empty,
        metavar="NAME",
        help="check this cluster only; may be given several times (default: all)",
    )
    _add_folders(parser)
    parser.add_argument("--json", type=_file, metavar="FILE", help="write the findings to FILE too")


def _add_qualify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "qualify",
        help="show which losses the gate sees, and how often it is wrong",
        description="Show what the gate can do on a cluster's own noise. The recorded runs of each "
        "case are split into a baseline and a candidate, by nights where there are enough; losses "
        "of nothing, 1/2, 1 and 2 tolerances are put into the candidate, and the gate judges. A "
        "tolerance below what the noise allows is refused.",
        epilog=_PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "cases",
        nargs="*",
        type=_not_empty,
        metavar="CASE",
        help="cases to qualify: ids, in which * stands for anything (default: all)",
    )
    parser.add_argument(
        "--cluster",
        type=_not_empty,
        metavar="NAME",
        help="the cluster whose runs are taken (default: that of --dlperf-cluster in the ini file "
        "or the environment)",
    )
    _add_folders(parser)
    parser.add_argument(
        "--trials",
        type=_trials,
        default=_DEFAULT_TRIALS,
        metavar="N",
        help=f"how often each loss is judged (default: {_DEFAULT_TRIALS})",
    )
    parser.add_argument(
        "--seed",
        type=_seed,
        default=0,
        metavar="N",
        help="another number splits the runs in another way (default: 0)",
    )
    parser.add_argument(
        "--gate",
        choices=("tolerance", "sequential"),
        help="qualify this rule (default: the one that a session would judge the case by)",
    )


def _add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compare",
        help="hold two results files side by side",
        description="Hold two results files (--dlperf-json) side by side: of two framework "
        "versions, of two clusters. For each case the ratio of the throughputs, B over A, with its "
        "95 % interval. It informs and is no gate: a slower B is no failure.",
        epilog="Exit codes: 0 compared, whatever came out; 2 a file cannot be read or written, a "
        "report would overwrite what is compared, the estimators differ, or no case was measured "
        "in both.",
        allow_abbrev=False,
    )
    parser.add_argument("first", type=_file, metavar="A.json", help="what is compared with")
    parser.add_argument("second", type=_file, metavar="B.json", help="what is compared")
    for letter in "ab":
        parser.add_argument(
            f"--label-{letter}",
            type=_label,
            metavar="NAME",
            help=f"what {letter.upper()} is called (default: the file's name)",
        )
    parser.add_argument("--markdown", type=_file, metavar="FILE", help="write Markdown to FILE")
    parser.add_argument("--html", type=_file, metavar="FILE", help="write a page to FILE")


def _add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "history",
        help="fill the database of all sessions, and show what it holds",
        description="Look after the database in which sessions keep all that they measure.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="history_command", metavar="ACTION", required=True)
    importing = actions.add_parser(
        "import",
        help="put results files of other machines into the database",
        description="Put results files (--dlperf-json) into the database: those of other machines, "
        "or of a CI that keeps no disk. What is there already stays as it is.",
        epilog=_PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    importing.add_argument(
        "files",
        nargs="+",
        type=_path,
        metavar="FILE",
        help="a results file; of a folder, all files *.json below it",
    )
    showing = actions.add_parser(
        "show",
        help="print the nights of cases, their change points, drift and noise",
        description="Print what the database says of each case: its last median, when its level "
        "has changed, what was accepted, whether it drifts, and how much its runs and its nights "
        "differ (coefficients of variation).",
        epilog=_PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    showing.add_argument(
        "cases",
        nargs="*",
        type=_not_empty,
        metavar="CASE",
        help="cases to show: ids, in which * stands for anything (default: all)",
    )
    showing.add_argument(
        "--cluster", type=_not_empty, metavar="NAME", help="show this cluster only (default: all)"
    )
    for action in (importing, showing):
        action.add_argument(
            "--history",
            type=_file,
            metavar="FILE",
            help="the database (default: that of sessions in this folder: DLPERF_HISTORY, "
            "dlperf_history in the ini file, .dlperf/history.sqlite3)",
        )


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baselines", type=_folder, metavar="DIR", help="folder of the clusters")
    parser.add_argument(
        "--systems",
        action="append",
        type=_folder,
        metavar="DIR",
        help="folder of system files; may be given several times",
    )


def _not_empty(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give a value or leave it out")
    return text


def _label(text: str) -> str:
    label = _not_empty(text).strip()
    if not label.isprintable():
        raise argparse.ArgumentTypeError(
            f"{text!r} has what cannot be shown in one line; name it in letters"
        )
    if len(label) > _LONGEST_LABEL:
        raise argparse.ArgumentTypeError(
            f"it has {len(label)} characters; {_LONGEST_LABEL} are the most"
        )
    return label


def _path(text: str) -> str:
    return os.path.expanduser(_not_empty(text))  # noqa: PTH111 - pathlib is not imported yet


def _folder(text: str) -> str:
    folder = _path(text)
    if not os.path.isdir(folder):  # noqa: PTH112
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return folder


def _file(text: str) -> str:
    file = _path(text)
    if os.path.isdir(file):  # noqa: PTH112
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file")
    return file


def _trials(text: str) -> int:
    return _whole_number(text, _FEWEST_TRIALS)


def _seed(text: str) -> int:
    return _whole_number(text, 0)


def _whole_number(text: str, least: int) -> int:
    # More digits than any of ours has; int() itself refuses thousands of them.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least):  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)

"""``pytest-dlperf keys``: shows the keys of the files that people write."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, text_argument
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    import argparse

_FILES: Final = {
    "system": "bench_tests/systems/*.yaml",
    "cluster": "baselines/<cluster>/cluster.yaml",
    "baselines": "baselines/<cluster>/<system>.yaml",
}
_INDENT: Final = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = "Show the keys of a file, the values that they take, and their meaning."
    parser.add_argument(
        "file",
        nargs="?",
        choices=list(_FILES),
        default="system",
        metavar="FILE",
        help="; ".join(f"{name}: {path}" for name, path in _FILES.items()) + " (default: system)",
    )
    parser.add_argument(
        "key",
        nargs="?",
        type=text_argument,
        metavar="KEY",
        help="show this key and those below it, as in launch.container (default: all)",
    )


def run(options: argparse.Namespace) -> int:
    """Show the keys.

    Raises:
        UsageError: There is no such key.
    """
    from pytest_dlperf.baselines.schemas import schemas
    from pytest_dlperf.files.schema_keys import schema_keys

    known = {key.path: key for key in schema_keys(schemas()[options.file])}
    wanted = options.key
    shown = [
        key
        for path, key in known.items()
        if wanted is None or path == wanted or path.startswith(f"{wanted}.")
    ]
    if not shown:
        raise UsageError(f"{_FILES[options.file]} has no key {wanted!r}{nearest(wanted, known)}")
    style = Style(sys.stdout)
    for key in shown:
        meaning = textwrap.wrap(key.meaning, style.width - len(_INDENT))
        style.show(
            [
                f"{style(key.path, 'bold')}  {key.value}",
                *(f"{_INDENT}{line}" for line in meaning),
            ]
        )
    return FINE

"""The reference pages of the site: what the code itself knows of commands, keys and systems.

Nothing here is said a second time: meanings are those that ``--help``, the schemas for editors and
the system files give.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.baselines.schemas import schema_text, schemas
from pytest_dlperf.command.main import COMMANDS
from pytest_dlperf.command.systems import schema_keys
from pytest_dlperf.config.extends import comment_of
from pytest_dlperf.config.options import OPTIONS
from pytest_dlperf.model.builtin import BUILTIN, builtin_metrics
from pytest_dlperf.results.file import json_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


PACKAGE: Final = "pytest_dlperf"
SYSTEMS: Final = f"{PACKAGE}/systems"
KEYS: Final = {
    "system": (
        "system-file",
        "System files",
        (
            "Keys of `bench_tests/systems/*.yaml`. What is required may come from the system that "
            "it extends. [Adding a system](../adding-a-system.md) explains "
            "them, [metrics](../metrics.md) those of `metrics`."
        ),
    ),
    "cluster": (
        "cluster-file",
        "Cluster files",
        "Keys of `baselines/<cluster>/cluster.yaml`. [Clusters](../clusters.md) explains them.",
    ),
    "baselines": (
        "baselines-file",
        "Baseline files",
        (
            "Keys of `baselines/<cluster>/<system>.yaml`, which sessions write. "
            "[Baselines](../baselines.md) explains them."
        ),
    ),
}


def pages(root: Path) -> dict[str, str]:
    """Write every reference page, and the schemas for editors, by their places on the site."""
    return {
        "reference/options.md": _options(),
        "reference/commands.md": _commands(),
        **{
            f"reference/{page}.md": _keys(schemas()[name], title, text)
            for name, (page, title, text) in KEYS.items()
        },
        **{f"schemas/{name}.json": schema_text(name) for name in KEYS},
        "schemas/results.json": json.dumps(json_schema(), ensure_ascii=False) + "\n",
        "reference/metrics.md": _metrics(),
        "reference/systems.md": _systems(sorted((root / SYSTEMS).glob("*.yaml"))),
    }


def _table(*headings: str, rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _code(text: str) -> str:
    return f"`{text}`"


def _escaped(text: str) -> str:
    """Escape Markdown outside of code, inside a table too."""
    return re.sub(r"(`[^`]*`)|([*_<|])", lambda match: match[1] or f"\\{match[2]}", text)


# ------------------------------------------------------------------------- options and commands


def _options() -> str:
    rows = [
        (
            _code(f"{option.flag} {option.metavar}".strip()),
            option.meaning.replace("|", "/"),
        )
        for option in OPTIONS.values()
    ]
    return "\n\n".join(
        (
            "# Options",
            (
                "`pytest --help` lists them too. The plugin does nothing unless a test uses a case "
                "or you give an option."
            ),
            _table("Option", "Meaning", rows=rows),
            (
                "All but `--dlperf-dry-run` and `--dlperf-reason` are also environment variables, "
                "as in `DLPERF_RUN_DIR`, and ini keys, as in `dlperf_run_dir`. The command line "
                "wins over the environment, and the environment over the ini file."
            ),
        )
    )


def _commands() -> str:
    def parts() -> Iterator[str]:
        yield "# Commands"
        yield "What `pytest-dlperf` can do, in its own words."
        for name, text in COMMANDS.items():
            # As wide as a page, and as plain, whatever the terminal of whoever builds the site.
            parser = argparse.ArgumentParser(
                prog=f"pytest-dlperf {name}",
                formatter_class=lambda prog: argparse.HelpFormatter(prog, width=78),
            )
            import_module(f"{PACKAGE}.command.{name}").add_arguments(parser)
            yield f"## {name}"
            yield text[0].upper() + text[1:] + "."
            yield f"```text\n{parser.format_help().rstrip()}\n```"

    return "\n\n".join(parts())


# ---------------------------------------------------------------------------------------- keys


def _keys(schema: dict[str, Any], title: str, text: str) -> str:
    """Give a file's keys, a section for each that has others below it."""
    sections: dict[str, list[tuple[str, str, str]]] = {"": []}
    for key in schema_keys(schema):
        first, _, rest = key.path.partition(".")
        row = (_code(rest or key.path), _escaped(key.value), _escaped(key.meaning))
        sections.setdefault(first if rest else "", []).append(row)
    parts = [f"# {title}", _escaped(schema["description"]), text]
    for name, rows in sections.items():
        parts += [f"## {name}"] if name else []
        parts.append(_table("Key", "Value", "Meaning", rows=rows))
    return "\n\n".join(parts)


# --------------------------------------------------------------------- metrics and verdicts


def _metrics() -> str:
    rows = [
        (
            _code(name),
            f"{metric.unit}, {metric.better.value} is better",
            "always" if metric.is_judged else "if listed",
            BUILTIN[name].meaning,
        )
        for name, metric in builtin_metrics("images/s").items()
        if metric.better is not None
    ]
    return "\n\n".join(
        (
            "# Metrics",
            (
                "The built-in metrics, here of a system whose unit is `images/s`. All are "
                "recorded; judged are the first two, and what the system lists under `metrics`, "
                "where it may declare [any other](../metrics.md) that a log prints."
            ),
            _table("Metric", "Unit", "Judged", "Meaning", rows=rows),
        )
    )


# ------------------------------------------------------------------------------------ systems


def _systems(files: Sequence[Path]) -> str:
    """Show the systems that ship: the comment of each file, its example, and what it declares."""

    def parts() -> Iterator[str]:
        yield "# Systems that ship"
        yield (
            "Each section has a system's comment, a file that extends it, and what that file gets. "
            "[Systems](../systems.md) shows what was tried."
        )
        for file in files:
            prose, example = comment_of(file.stem)
            declared = re.sub(r"\A(#.*\n)+", "", file.read_text(encoding="utf-8"))
            yield f"## {file.stem} {{ #{file.stem} }}"
            yield re.sub(r"(?m)^(?:\n)?(Set|Note):", r"\n**\1:**", prose)
            yield f"```yaml\n{example}```"
            yield f"```yaml\n{declared.rstrip()}\n```"

    return "\n\n".join(parts())

"""How accepted numbers stand in a file: an entry's values as text, new files, their schemas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.editing import Block, Inline, MoreItems
from pytest_dlperf.config.schema import (
    BASELINES_SCHEMA,
    CLUSTER_SCHEMA,
    SCHEMA_FOLDER,
    schema_comment,
    schema_text,
)
from pytest_dlperf.files.locks import write_whole
from pytest_dlperf.model.baseline import ROLLING_SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.baseline import Acceptance, Baseline
    from pytest_dlperf.model.measurement import Estimator

# What YAML 1.1 takes for something else than text.
_YAML_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


# ---------------------------------------------------------------------------- an entry's values


def new_values(
    baseline: Baseline, machine: Mapping[str, str], *, recorded: str
) -> dict[str, Inline | Block]:
    """All that a new entry says; ``recorded`` is its day, ``machine`` the cluster's."""
    values = {
        name: value for name, value in _values(baseline, machine).items() if value is not None
    }
    return {**values, "recorded": Inline(_quoted(recorded))}


def changed_values(
    standing: Baseline, now: Baseline, machine: Mapping[str, str]
) -> dict[str, Inline | Block | MoreItems | None]:
    """The values of an entry that are others ``now``; ``None`` for those that go.

    Of sessions one more is written, or all go. ``machine`` is the cluster's.
    """
    old, new = _values(standing, machine), _values(now, machine)
    changed: dict[str, Inline | Block | MoreItems | None] = {
        name: value for name, value in new.items() if value != old[name]
    }
    if now.sessions != standing.sessions:
        items = tuple(
            f"- {{at: {_quoted(session.at)}, runs: {_list(session.runs)}}}"
            for session in now.sessions[-1:]
        )
        changed["sessions"] = MoreItems(items, at_most=ROLLING_SESSIONS) if items else None
    return changed


def _values(baseline: Baseline, machine: Mapping[str, str]) -> dict[str, Inline | Block | None]:
    """An entry's values as text, but for those that people write; ``None`` where there is none."""
    accepted = baseline.accepted
    return {
        "throughput": _number(baseline.throughput),
        "speedup": _number(baseline.speedup),
        "mean": _number(baseline.mean),
        "runs": _runs(baseline.runs),
        "strays": _runs(baseline.strays),
        "accepted": None if accepted is None else Block(_acceptance_lines(accepted)),
        "machine": None if baseline.machine == machine else Inline(_mapping(baseline.machine)),
    }


def _number(value: float | None) -> Inline | None:
    return None if value is None else Inline(repr(value))


def _runs(runs: Mapping[int, float]) -> Inline | None:
    listed = ", ".join(f"{run}: {value!r}" for run, value in runs.items())
    return Inline(f"{{{listed}}}") if runs else None


def _acceptance_lines(accepted: Acceptance) -> tuple[str, ...]:
    lines = [f"at: {_quoted(accepted.at)}"]
    for key, text in (("commit", accepted.commit), ("reason", accepted.reason)):
        if text is not None:
            lines.append(f"{key}: {_quoted(text)}")
    if accepted.hosts:
        lines.append(f"hosts: [{', '.join(map(_quoted, accepted.hosts))}]")
    if accepted.software:
        lines.append(f"software: {_mapping(accepted.software)}")
    if accepted.logs is not None:
        lines.append(f"logs: {_quoted(accepted.logs)}")
    if accepted.single_device is not None:
        lines.append(f"single_device: {accepted.single_device!r}")
    return tuple(lines)


def _mapping(facts: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_quoted(key)}: {_quoted(text)}' for key, text in facts.items())}}}"


def _list(values: Iterable[float]) -> str:
    return f"[{', '.join(repr(value) for value in values)}]"


def _quoted(text: str) -> str:
    """Text as a YAML scalar: bare where that is safe."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_/.-]*", text) and text.lower() not in _YAML_WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


# ------------------------------------------------------------------------------------ new files


def new_cluster_file(cluster: Cluster) -> str:
    """The text of the ``cluster.yaml`` of a cluster that has none."""
    return (
        f"{schema_comment(CLUSTER_SCHEMA)}\n"
        "description: this machine's own numbers, recorded by --dlperf-create-baselines\n"
        f"estimator: {cluster.estimator.value}\n"
    )


def new_file(system: str, unit: str, estimator: Estimator, provenance: Mapping[str, str]) -> str:
    """The text of a system's file without any entry."""
    lines = [
        schema_comment(BASELINES_SCHEMA),
        f"system: {system}",
        f"unit: {_quoted(unit)}",
        f"estimator: {estimator.value}",
    ]
    if provenance:
        lines += ["provenance:", *(f"  {key}: {_quoted(text)}" for key, text in provenance.items())]
    return "\n".join([*lines, "entries:\n"])


def write_schemas(cluster: Cluster, text: str) -> None:
    """Lay the schemas where a file of this text, if it names them, has them looked for.

    Raises:
        OSError: They cannot be written.
    """
    if f"../{SCHEMA_FOLDER}/" not in text:
        return
    folder = cluster.directory.parent / SCHEMA_FOLDER
    for name in (BASELINES_SCHEMA, CLUSTER_SCHEMA):
        wanted = schema_text(name)
        try:
            stands = (folder / name).read_text(encoding="utf-8") == wanted
        except (OSError, UnicodeDecodeError):
            stands = False
        if not stands:
            write_whole(folder / name, wanted)

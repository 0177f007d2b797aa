"""Systems: what ``systems/*.yaml`` declares about a trainer or a probe, and the cases it names."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.cases import Flops, named_cases
from pytest_dlperf.config.extends import EXTENDS, extended
from pytest_dlperf.config.metrics import check_probe_metrics, metrics_of
from pytest_dlperf.config.system_shape import (
    DEFAULT_REPEATS,
    DEFAULT_TOLERANCE_PERCENT,
    system_shape,
)
from pytest_dlperf.files.shapes import Record, Shape
from pytest_dlperf.files.yamlfile import (
    Later,
    Problem,
    YamlError,
    YamlValue,
    load,
    nearest,
    read_text,
)
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.formats.log_format import NO_STEPS, LogFormat, Ranks, WhichNode
from pytest_dlperf.model.measurement import NO_WINDOW, Window
from pytest_dlperf.model.metric import MFU

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.config.launch_spec import LaunchSpec
    from pytest_dlperf.formats.declared import DeclaredMetric
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.metric import Metric

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")
_MARK: Final = re.compile(r"\b(?P<key>record|json|csv|step|global_batch|sequence_length): .*# ?\?")
"""A number that a guess has written, and nothing has confirmed."""


class System(Struct, frozen=True, kw_only=True):
    """One trainer or probe: framework and model, how it is started and read, and its cases.

    ``system_shape`` says what each value is. A probe is any program that prints numbers: its logs
    show no steps, none is measured, and it has no ``unit`` of throughput.
    """

    framework: str
    model: str
    unit: str = ""
    log_name: str
    log_format: LogFormat = NO_STEPS
    log_node: WhichNode = WhichNode.FIRST
    """The nodes whose logs show the steps of a run."""
    window: Window = NO_WINDOW
    cases: tuple[Case, ...]
    repeats: int = DEFAULT_REPEATS
    tolerance_percent: float = DEFAULT_TOLERANCE_PERCENT
    marks: tuple[str, ...] = ()
    later_launch: Later[LaunchSpec] | None = None
    metrics: tuple[Metric, ...]
    """What a run of it may have: throughput and speedup, built-in and declared ones."""
    declared: tuple[DeclaredMetric, ...] = ()
    """Those of them that its logs print."""
    needs: tuple[str, ...] = ()
    """Probes that run first on a case's hosts; where one breaks, the case is not started."""
    companions: tuple[str, ...] = ()
    """Probes that run on a case's hosts once it is red."""
    resource: str | None = None
    """What of its hosts a probe measures."""
    file: Path

    @property
    def id(self) -> str:
        """The name that cases, baselines and options know the system by."""
        return f"{self.framework}-{self.model}"

    @property
    def is_probe(self) -> bool:
        """Whether it has no steps."""
        return not self.window.measured_steps

    @property
    def doubts(self) -> tuple[Problem, ...]:
        """The numbers that its file marks with ``# ?``; none is recorded before the marks are gone.

        Raises:
            YamlError: The file can no longer be read.
        """
        return doubts_in(read_text(self.file), self.file) if self.file.is_file() else ()

    @property
    def launch(self) -> LaunchSpec | None:
        """How the trainer is started; ``None`` for a system whose logs are only read.

        Raises:
            YamlError: The entry has mistakes, and was left for later when the file was read.
        """
        return None if self.later_launch is None else self.later_launch()


def doubts_in(text: str, file: Path) -> tuple[Problem, ...]:
    """List the numbers that the text of a system file marks with ``# ?``."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        # An expression may hold what looks like a mark.
        mark = _MARK.search(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), line))
        if mark is not None:
            why = line[mark.end() :].strip() or "it is marked # ?"
            message = (
                f"{mark['key']} is in doubt: {why}; look at it, and take the mark away: no "
                "baseline is recorded before"
            )
            found.append(Problem(place=f"{file}:{number}", message=message, is_fault=False))
    return tuple(found)


def system_files(directories: Iterable[Path]) -> list[Path]:
    """List the system files of some folders, those of each in the order of their names."""
    return [
        file
        for directory in directories
        for file in sorted((*directory.glob("*.yaml"), *directory.glob("*.yml")))
    ]


def load_systems(
    files: Iterable[Path], formats: Mapping[str, LogFormat], *, lazily: bool = False
) -> dict[str, System]:
    """Read all systems, by id, in the order of the files.

    With ``lazily`` what they say about launching is read, and its mistakes are found, when it is
    asked for.

    Raises:
        YamlError: With all mistakes of all files.
    """
    systems, problems = read_systems(files, formats, lazily=lazily)
    if problems:
        raise YamlError(problems)
    return systems


def read_systems(
    files: Iterable[Path], formats: Mapping[str, LogFormat], *, lazily: bool = False
) -> tuple[dict[str, System], list[Problem]]:
    """Read the systems of all files that have no mistakes, and list the mistakes of the others."""
    shape = system_shape(formats, _AnyPlace())
    systems: dict[str, System] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            system = load(file, partial(_read_system, shape=shape, lazily=lazily))
        except YamlError as error:
            problems += error.problems
            continue
        if system.id in systems:
            first = systems[system.id].file
            message = f"the system {system.id} is declared twice; the first is in {first}"
            problems += YamlError.at(file, message).problems
            continue
        systems[system.id] = system
    if not problems and any(one.needs or one.companions for one in systems.values()):
        problems += _unknown_probes(systems)
    return systems, problems


def probes_for(case: Case, names: Iterable[str], systems: Mapping[str, System]) -> list[Case]:
    """Return the cases of probes that run on as many nodes and devices as a case, by their names.

    A name is that of a system, or of a case without its topology.
    """
    return [
        probe
        for name in dict.fromkeys(names)
        for system in systems.values()
        for probe in system.cases
        if probe.topology == case.topology and name in (system.id, _without_topology(probe))
    ]


def _without_topology(case: Case) -> str:
    return case.id.removesuffix(f"-{case.topology}")


def _unknown_probes(systems: Mapping[str, System]) -> Iterator[Problem]:
    known = {
        name
        for system in systems.values()
        if system.is_probe
        for name in (system.id, *map(_without_topology, system.cases))
    }
    for system in systems.values():
        for key, names in (("needs", system.needs), ("companions", system.companions)):
            for name in names:
                message = None
                if name not in known or name == system.id:
                    message = f"no other system file declares the probe {name}"
                    message += nearest(name, known - {system.id})
                elif not any(probes_for(case, [name], systems) for case in system.cases):
                    message = f"{name} has none of the topologies of {system.id}"
                if message is not None:
                    yield from YamlError.at(system.file, message, path=f"$.{key}").problems


def system_of_text(text: str, file: Path, formats: Mapping[str, LogFormat]) -> System:
    """Read the text of a system file.

    Raises:
        YamlError: With its mistakes.
    """
    shape = system_shape(formats, _AnyPlace())
    return load(file, partial(_read_system, shape=shape, lazily=True), text=text)


class _AnyPlace(Shape[YamlValue]):
    """Whatever stands there: the place itself, to be read later."""

    allowed = "anything"

    def read(self, value: YamlValue) -> YamlValue:
        return value

    def json_schema(self) -> dict[str, Any]:
        return {}


def _read_system(own: YamlValue, shape: Record[dict[str, Any]], *, lazily: bool) -> System | None:
    root = extended(own)
    if root is None:
        return None
    parts = shape.parts(root)
    parts.pop(EXTENDS, None)
    named: dict[Case, str] | None = None
    is_probe = _is_probe(root)
    flops = Flops(**{key: parts.pop(key, None) for key in ("flops_per_token", "flops_per_sample")})
    if {"framework", "model", "cases"} <= parts.keys() and (is_probe or "unit" in parts):
        named = named_cases(
            root.at("cases"),
            parts["cases"],
            framework=parts["framework"],
            model=parts["model"],
            unit=parts.get("unit"),
            flops=flops,
        )
    cases = None if named is None else tuple(named)
    launch = None
    place = parts.pop("launch", None)
    if place is not None:
        log_file = (parts.get("log") or {}).get("file")
        launch = Later(root, partial(_read_launch, cases=cases, log_file=log_file))
        if not lazily:
            launch.read_now()
    if named is None or not (is_probe or {"unit", "log", "window"} <= parts.keys()):
        return None
    parts["cases"] = tuple(named)
    return _system(root, parts, launch, is_probe=is_probe)


def _system(
    root: YamlValue,
    parts: dict[str, Any],
    launch: Later[LaunchSpec] | None,
    *,
    is_probe: bool,
) -> System:
    """Make the system of its parts, and tell what does not go together."""
    log = {"name": parts["framework"], "format": NO_STEPS, **parts.pop("log", {})}
    log_node = log.get("node", WhichNode.FIRST)
    cases: tuple[Case, ...] = parts["cases"]
    options = frozenset(option for case in cases for option in case.options)
    entries = parts.get("metrics", {})
    has_flops = any(case.flops_per_sample is not None for case in cases)
    if MFU in entries and not has_flops:
        message = "MFU needs flops_per_token or flops_per_sample, of the system or of a case"
        root.at(f"metrics.{MFU}").fault(message)
    if is_probe:
        check_probe_metrics(entries, root)
    elif log["format"].name == NO_STEPS.name:
        root.at("log.format").fault("a record is one of 'record', 'json' and 'csv'")
    _check_facts(root, cases)
    for name in () if is_probe else entries:
        if entries[name].keys() & {"json", "csv"}:
            root.at(f"metrics.{name}").fault(
                "'json' and 'csv' are of probes; a training's number is found by 'record'"
            )
    parts["metrics"], parts["declared"] = metrics_of(
        parts.get("unit"),
        entries,
        is_launched=launch is not None,
        has_flops=has_flops,
        log_node=log_node,
    )
    if log["format"].renumbers:
        for each in parts["declared"]:
            if each.has_step:
                root.at(f"metrics.{each.metric.name}.record").fault(
                    "the group 'step' does not number the steps here; without it, a number is "
                    "of the step on whose line it stands, or of the one before"
                )
    return System(
        log_name=log["name"],
        log_format=replace(log["format"], options=options, ranks=_ranks(root, log["format"])),
        log_node=log_node,
        later_launch=launch,
        file=root.file,
        **parts,
    )


def _is_probe(root: YamlValue) -> bool:
    """Whether nothing of steps is there; where something is, say what a training lacks."""
    form = root.at("log.format")
    has_format = _has(root, "log.format") and [*_keys(form)] != ["facts"]
    if not (has_format or any(_has(root, path) for path in ("unit", "window"))):
        return True
    for path in ("unit", "log", "log.name", "log.format", "window"):
        above, _, key = path.rpartition(".")
        if not _has(root, path) and (not above or root.at(above).kind == "mapping"):
            root.at(above).fault(f"the key {key!r} is missing")
    return False


def _check_facts(root: YamlValue, cases: Sequence[Case]) -> None:
    axes = cases[0].free_axes if cases else {}
    path = "log.format.facts"
    for name in _keys(root.at(path)) if _has(root, path) else ():
        if name not in CASE_FACTS and name not in axes:
            known = ", ".join((*axes, *CASE_FACTS))
            root.at(path).fault(f"{name!r} is not a fact of a case; those are {known}")


def _keys(place: YamlValue) -> Iterator[str]:
    yield from (key for key, _ in place.entries()) if place.kind == "mapping" else ()


def _has(root: YamlValue, path: str) -> bool:
    return root.at(path).path == f"{root.path}.{path}"


def _ranks(root: YamlValue, log_format: LogFormat) -> Ranks:
    """Return which ranks print into a log: with ``start_on: head`` all print into the head's."""
    start_on = root.at("launch.start_on")
    on_head = start_on.kind == "scalar" and start_on.scalar == "head"
    return Ranks.ALL if on_head and log_format.ranks is Ranks.LOCAL else log_format.ranks


def _read_launch(
    root: YamlValue, cases: Sequence[Case] | None, log_file: str | None
) -> LaunchSpec | None:
    # Only now: listing cases needs none of it.
    from pytest_dlperf.config.launch_shapes import read_launch

    return read_launch(root, cases, log_file)

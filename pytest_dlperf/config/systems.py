"""Systems: what ``systems/*.yaml`` declares about a trainer or a probe, and the cases it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pytest_dlperf.config.cases import named_cases
from pytest_dlperf.config.extends import PRIVATE, extended
from pytest_dlperf.config.launch_keys import StartOn
from pytest_dlperf.config.launch_spec import LaunchSpec, launch_of
from pytest_dlperf.config.metrics import declared_metrics, metrics_of
from pytest_dlperf.config.parts import of_model
from pytest_dlperf.config.system_file import Format, SystemFile
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError, YamlFile, read_text
from pytest_dlperf.formats.declared import DeclaredMetric
from pytest_dlperf.formats.facts import CASE_FACTS, declared_facts
from pytest_dlperf.formats.log_format import (
    NO_STEPS,
    LogFormat,
    Ranks,
    WhichNode,
    custom_format,
)
from pytest_dlperf.model.builtin import MFU, Needs
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import NO_WINDOW, Window
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.work import check_unit

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")
_MARK: Final = re.compile(r"\b(?P<key>record|json|csv|step|global_batch|sequence_length): .*# ?\?")
"""A number that a guess has written, and nothing has confirmed."""
# A whole system that is skipped or expected to fail would be a green that means nothing.
_TAKEN_MARKS: Final = (
    "dlperf",
    "filterwarnings",
    "parametrize",
    "skip",
    "skipif",
    "usefixtures",
    "xfail",
)


class System(Struct, frozen=True, kw_only=True):
    """One trainer or probe: framework and model, how it is started and read, and its cases.

    ``SystemFile`` says what each value is. A probe is any program that prints numbers: its logs
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
    repeats: int = 5
    tolerance_percent: float = 5.0
    marks: tuple[str, ...] = ()
    launch: LaunchSpec | None = None
    """How the trainer is started; ``None`` for a system whose logs are only read."""
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
    def doubts(self) -> tuple[Diagnostic, ...]:
        """The numbers that its file marks with ``# ?``; none is recorded before the marks are gone.

        Raises:
            YamlError: The file can no longer be read.
        """
        return doubts_in(read_text(self.file), self.file) if self.file.is_file() else ()


def doubts_in(text: str, file: Path) -> tuple[Diagnostic, ...]:
    """List the numbers that the text of a system file marks with ``# ?``."""
    doubts = []
    for number, line in enumerate(text.splitlines(), 1):
        # An expression may hold what looks like a mark.
        mark = _MARK.search(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), line))
        if mark is not None:
            why = line[mark.end() :].strip() or "it is marked # ?"
            message = (
                f"{mark['key']} is in doubt: {why}; look at it, and take the mark away: no "
                "baseline is recorded before"
            )
            doubts.append(Diagnostic(place=f"{file}:{number}", message=message, is_error=False))
    return tuple(doubts)


def system_files(directories: Iterable[Path]) -> list[Path]:
    """List the system files of some folders, those of each in the order of their names."""
    return [
        file
        for directory in directories
        for file in sorted((*directory.glob("*.yaml"), *directory.glob("*.yml")))
    ]


def load_systems(files: Iterable[Path], formats: Mapping[str, LogFormat]) -> dict[str, System]:
    """Read all systems, by id, in the order of the files.

    Raises:
        YamlError: With all mistakes of all files.
    """
    systems, problems = read_systems(files, formats)
    if problems:
        raise YamlError(problems)
    return systems


def read_systems(
    files: Iterable[Path], formats: Mapping[str, LogFormat]
) -> tuple[dict[str, System], list[Diagnostic]]:
    """Read the systems of all files that have no mistakes, and list the mistakes of the others."""
    systems: dict[str, System] = {}
    problems: list[Diagnostic] = []
    for file in files:
        try:
            system = _read_system(YamlFile(file, private=PRIVATE), formats)
        except YamlError as error:
            problems += error.diagnostics
            continue
        if system.id in systems:
            first = systems[system.id].file
            message = f"the system {system.id} is declared twice; the first is in {first}"
            problems += YamlError.at(file, message).diagnostics
            continue
        systems[system.id] = system
    if not problems and any(system.needs or system.companions for system in systems.values()):
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


def _unknown_probes(systems: Mapping[str, System]) -> Iterator[Diagnostic]:
    probes = {
        name
        for system in systems.values()
        if system.is_probe
        for name in (system.id, *map(_without_topology, system.cases))
    }
    for system in systems.values():
        for key, names in (("needs", system.needs), ("companions", system.companions)):
            for name in names:
                message = None
                if name not in probes or name == system.id:
                    message = f"no other system file declares the probe {name}"
                    message += nearest(name, probes - {system.id})
                elif not any(probes_for(case, [name], systems) for case in system.cases):
                    message = f"{name} has none of the topologies of {system.id}"
                if message is not None:
                    yield from YamlError.at(system.file, message, path=f"$.{key}").diagnostics


def system_of_text(text: str, file: Path, formats: Mapping[str, LogFormat]) -> System:
    """Read the text of a system file.

    Raises:
        YamlError: With its mistakes.
    """
    return _read_system(YamlFile(file, text, private=PRIVATE), formats)


def _read_system(own: YamlFile, formats: Mapping[str, LogFormat]) -> System:
    file = extended(own)
    is_probe = _is_probe(file)
    keys = file.read(SystemFile)
    node = WhichNode(keys.log.node)
    try:
        check_unit(keys.unit or "")
    except ValueError as error:
        file.error(("unit",), str(error))
    for number, mark in enumerate(keys.marks):
        if mark in _TAKEN_MARKS or not mark.isidentifier():
            message = f"the marker {mark!r} cannot be a system's; use another name"
            file.error(("marks", number), message)
    cases = named_cases(
        file,
        keys.cases,
        framework=keys.framework,
        model=keys.model,
        unit=keys.unit,
        flops=keys,
    )
    log_format = _log_format(file, keys.log.format, formats, is_probe=is_probe)
    _check_facts(file, keys.log.format, cases)
    has_flops = any(case.flops_per_sample is not None for case in cases)
    if MFU in keys.metrics and cases and not has_flops:
        message = "MFU needs flops_per_token or flops_per_sample, of the system or of a case"
        file.error(("metrics", MFU), message)
    declared = declared_metrics(
        file, keys.metrics, is_probe=is_probe, unit=keys.unit or "", node=node
    )
    for name, each in declared.items() if log_format.renumbers else ():
        if each.has_step:
            file.error(
                ("metrics", name, "record"),
                "the group 'step' does not number the steps here; without it, a number is "
                "of the step on whose line it stands, or of the one before",
            )
    launch = None if keys.launch is None else launch_of(file, keys.launch, cases, keys.log.file)
    file.check()
    ranks = log_format.ranks
    if launch is not None and launch.start_on is StartOn.HEAD and ranks is Ranks.LOCAL:
        ranks = Ranks.ALL  # all print into the head's log
    options = frozenset(option for case in cases for option in case.options)
    builtin: Iterable[Metric] = ()
    if keys.unit is not None:
        available = {Needs.LAUNCH: launch is not None, Needs.FLOPS: has_flops}
        builtin = metrics_of(keys.unit, keys.metrics, [n for n, has in available.items() if has])
    return System(
        framework=keys.framework,
        model=keys.model,
        unit=keys.unit or "",
        log_name=keys.log.name or keys.framework,
        log_format=replace(log_format, options=options, ranks=ranks),
        log_node=node,
        window=of_model(Window, keys.window) if keys.window else NO_WINDOW,
        cases=cases,
        repeats=keys.repeats,
        tolerance_percent=keys.tolerance_percent,
        marks=keys.marks,
        launch=launch,
        metrics=(*builtin, *(each.metric for each in declared.values())),
        declared=tuple(declared.values()),
        needs=keys.needs,
        companions=keys.companions,
        resource=keys.resource,
        file=file.file,
    )


def _is_probe(file: YamlFile) -> bool:
    """Whether nothing of steps is there; where something is, report what a training lacks."""
    keys = file.value if isinstance(file.value, dict) else {}
    log = keys.get("log", {})
    form = log.get("format") if isinstance(log, dict) else None
    has_format = form is not None and not (isinstance(form, dict) and [*form] == ["facts"])
    if not (has_format or "unit" in keys or "window" in keys):
        return True
    for key in ("unit", "log", "window"):
        if key not in keys:
            file.error((), f"the key {key!r} is missing")
    for key in ("name", "format"):
        if "log" in keys and isinstance(log, dict) and key not in log:
            file.error(("log",), f"the key {key!r} is missing")
    return False


def _log_format(
    file: YamlFile,
    form: str | Format | None,
    formats: Mapping[str, LogFormat],
    *,
    is_probe: bool,
) -> LogFormat:
    place = ("log", "format")
    if isinstance(form, str) and form not in formats:
        allowed = f"{', '.join(formats)}, or a mapping with 'record', 'json' or 'csv'"
        file.error(place, f"found {form!r}; allowed: {allowed}{nearest(form, formats)}")
    if form is None or isinstance(form, str):
        return formats.get(form or "", NO_STEPS)
    facts, options = to_builtins((form.facts, form.options))
    step = form.step
    try:
        if is_probe:
            return replace(NO_STEPS, facts=declared_facts(facts, {}))
        return custom_format(
            file.place(place).file.stem,
            record=form.record,
            json=form.json,
            csv=form.csv,
            where=form.where,
            first_step=form.first_step,
            step_every=1 if step == "count" else None if step is None else step.every,
            steps_in=form.steps_in,
            ranks=form.ranks,
            rate_scope=form.rate_scope,
            covers=form.covers,
            facts=facts,
            options=options,
        )
    except ValueError as error:
        file.error(place, str(error))
        return NO_STEPS


def _check_facts(file: YamlFile, form: str | Format | None, cases: Sequence[Case]) -> None:
    axes = cases[0].free_axes if cases else {}
    for name in () if form is None or isinstance(form, str) else form.facts:
        if name not in CASE_FACTS and name not in axes:
            facts = ", ".join((*axes, *CASE_FACTS))
            message = f"{name!r} is not a fact of a case; those are {facts}"
            file.error(("log", "format", "facts", name), message)

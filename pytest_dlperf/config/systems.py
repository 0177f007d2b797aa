"""Systems: what ``systems/*.yaml`` declares about a trainer or a probe, and the cases it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from pytest_dlperf.config.cases import build_cases
from pytest_dlperf.config.extends import PRIVATE, lay_over_bases
from pytest_dlperf.config.launch import Launch, checked_launch
from pytest_dlperf.config.launch_keys import StartOn
from pytest_dlperf.config.metrics import system_metrics
from pytest_dlperf.config.settings import check_own_settings
from pytest_dlperf.config.system_file import Format, SystemFile, SystemKeys
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError, YamlFile, read_text
from pytest_dlperf.formats.declared import DeclaredMetric
from pytest_dlperf.formats.facts import CASE_FACTS, declared_facts
from pytest_dlperf.formats.log_format import NO_STEPS, LogFormat, Ranks, WhichNode, custom_format
from pytest_dlperf.model.builtin import Needs
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import NO_WINDOW, Window
from pytest_dlperf.model.metric import Metric

_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"")
_MARK: Final = re.compile(r"\b(?P<key>record|json|csv|step|global_batch|sequence_length): .*# ?\?")
"""A number that a guess has written, and nothing has confirmed."""


class System(SystemKeys, frozen=True, kw_only=True):
    """One trainer or probe: how it is started and read, and its cases.

    A probe is any program that prints numbers: its logs show no steps, none is measured, and it has
    no ``unit`` of throughput.
    """

    unit: str = ""
    log_name: str
    log_format: LogFormat = NO_STEPS
    log_node: WhichNode = WhichNode.FIRST
    """The nodes whose logs show the steps of a run."""
    window: Window = NO_WINDOW
    cases: tuple[Case, ...]
    launch: Launch | None = None
    """How the trainer is started; ``None`` for a system whose logs are only read."""
    metrics: tuple[Metric, ...]
    """What a run of it may have: throughput and speedup, built-in and declared ones."""
    declared: tuple[DeclaredMetric, ...] = ()
    """Those of them that its logs print."""
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
        """The numbers that its file marks with ``# ?``; none is recorded before they are gone."""
        return doubts_in(read_text(self.file), self.file) if self.file.is_file() else ()


def doubts_in(text: str, file: Path) -> tuple[Diagnostic, ...]:
    """List the numbers that the text of a system file marks with ``# ?``."""
    doubts = []
    for number, line in enumerate(text.splitlines(), 1):
        # An expression may hold what looks like a mark.
        if mark := _MARK.search(_QUOTED.sub(lambda quoted: "_" * len(quoted[0]), line)):
            why = line[mark.end() :].strip() or "it is marked # ?"
            remedy = "look at it, and take the mark away: no baseline is recorded before"
            message = f"{mark['key']} is in doubt: {why}; {remedy}"
            doubts.append(Diagnostic(place=f"{file}:{number}", message=message, is_error=False))
    return tuple(doubts)


def system_files(directories: Iterable[Path]) -> list[Path]:
    """List the system files of some folders, those of each in the order of their names."""
    return [file for folder in directories for file in sorted(folder.glob("*.y*ml"))]


def load_systems(files: Iterable[Path], formats: Mapping[str, LogFormat]) -> dict[str, System]:
    """Read all systems, by id, in the order of the files."""
    systems, mistakes = read_systems(files, formats)
    if mistakes:
        raise YamlError(mistakes)
    return systems


def read_systems(
    files: Iterable[Path], formats: Mapping[str, LogFormat]
) -> tuple[dict[str, System], list[Diagnostic]]:
    """Read the systems of all files that have no mistakes, and list the mistakes of the others."""
    systems: dict[str, System] = {}
    mistakes: list[Diagnostic] = []
    for file in files:
        try:
            system = _read_system(YamlFile(file, private=PRIVATE), formats)
            first = systems.setdefault(system.id, system)
            if first is not system:
                message = f"the system {system.id} is declared twice; the first is in {first.file}"
                raise YamlError.at(file, message)
        except YamlError as error:
            mistakes += error.diagnostics
    return systems, mistakes or list(_probe_mistakes(systems))


def probes_for(case: Case, names: Iterable[str], systems: Mapping[str, System]) -> list[Case]:
    """Return the cases of probes that run on as many nodes and devices as a case, by their names.

    A name is that of a system, or of a case without its topology.
    """
    return [
        probe
        for name in dict.fromkeys(names)
        for system in systems.values()
        for probe in system.cases
        if probe.topology == case.topology and name in _names(probe)
    ]


def _names(probe: Case) -> tuple[str, str]:
    return probe.system, probe.id.removesuffix(f"-{probe.topology}")


def _probe_mistakes(systems: Mapping[str, System]) -> Iterator[Diagnostic]:
    """Find probes that systems name and none is."""
    for system in systems.values():
        others = (it for it in systems.values() if it.is_probe and it is not system)
        probes = {name for each in others for probe in each.cases for name in _names(probe)}
        for key in ("needs", "companions"):
            for name in getattr(system, key):
                message = f"{name} has none of the topologies of {system.id}"
                if name not in probes:
                    message = (
                        f"no other system file declares the probe {name}{nearest(name, probes)}"
                    )
                elif any(probes_for(case, [name], systems) for case in system.cases):
                    continue
                yield from YamlError.at(system.file, message, path=f"$.{key}").diagnostics


def system_of_text(text: str, file: Path, formats: Mapping[str, LogFormat]) -> System:
    """Read the text of a system file."""
    return _read_system(YamlFile(file, text, private=PRIVATE), formats)


def _read_system(file: YamlFile, formats: Mapping[str, LogFormat]) -> System:
    lay_over_bases(file)
    _check_complete(file)
    keys = file.read(SystemFile)
    cases = build_cases(file, keys)
    launch = keys.launch and checked_launch(file, keys.launch, cases)
    available = [Needs.NOTHING]
    if launch is not None:
        check_own_settings(file)
        available.append(Needs.LAUNCH)
    if any(each.flops_per_token or each.flops_per_sample for each in (keys, *keys.cases)):
        available.append(Needs.FLOPS)
    builtin, declared = system_metrics(file, keys, available)
    log_format = _log_format(file, keys, formats, cases)
    for name, metric in declared.items() if log_format.renumbers else ():
        if metric.has_step:
            file.error(
                ("metrics", name, "record"),
                "the group 'step' does not number the steps here; without it, a number is "
                "of the step on whose line it stands, or of the one before",
            )
    file.check()
    if launch is not None and launch.start_on is StartOn.HEAD and log_format.ranks is Ranks.LOCAL:
        log_format = replace(log_format, ranks=Ranks.ALL)  # all print into the head's log
    return System(
        **{name: getattr(keys, name) for name in SystemKeys.__struct_fields__},
        unit=keys.unit or "",
        log_name=keys.log.name or keys.framework,
        log_format=log_format,
        log_node=WhichNode(keys.log.node),
        window=keys.window or NO_WINDOW,
        cases=cases,
        launch=launch,
        metrics=(*builtin.values(), *(each.metric for each in declared.values())),
        declared=tuple(declared.values()),
        file=file.file,
    )


def _check_complete(file: YamlFile) -> None:
    """Report what a training lacks, which is a file that says anything of steps."""
    keys = file.value if isinstance(file.value, dict) else {}
    log = {**keys["log"]} if isinstance(keys.get("log"), dict) else {}
    form = log.get("format")
    has_format = form is not None and not (isinstance(form, dict) and [*form] == ["facts"])
    if has_format or "unit" in keys or "window" in keys:
        for path, key in ((), "unit"), ((), "window"), (("log",), "format"):
            if key not in (log if path else keys):
                file.error(path, f"the key {key!r} is missing")


def _log_format(
    file: YamlFile, keys: SystemFile, formats: Mapping[str, LogFormat], cases: Sequence[Case]
) -> LogFormat:
    place, form = ("log", "format"), keys.log.format
    log_format = formats.get(form, NO_STEPS) if isinstance(form, str) else NO_STEPS
    if isinstance(form, str) and form not in formats:
        allowed = f"{', '.join(formats)}, or a mapping with 'record', 'json' or 'csv'"
        file.error(place, f"found {form!r}; allowed: {allowed}{nearest(form, formats)}")
    elif isinstance(form, Format):
        facts = [*(cases[0].free_axes if cases else ()), *CASE_FACTS]
        for name in form.facts:
            if name not in facts:
                message = f"{name!r} is not a fact of a case; those are {', '.join(facts)}"
                file.error((*place, "facts", name), message)
        try:
            log_format = _own_format(file.place(place).file.stem, form, is_probe=keys.unit is None)
        except ValueError as error:
            file.error(place, str(error))
    options = frozenset(option for case in cases for option in case.options)
    return replace(log_format, options=options)


def _own_format(name: str, form: Format, *, is_probe: bool) -> LogFormat:
    said = {**asdict(form), **to_builtins({"facts": form.facts, "options": form.options})}
    if is_probe:
        return replace(NO_STEPS, facts=declared_facts(said["facts"], {}))
    step = said.pop("step")
    every = 1 if step == "count" else step and step.every
    return custom_format(name, **said, step_every=every)

"""Find out what a log is: by systems of the project, formats, known trainers, or a guess."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.extends import comment_of, shipped_systems
from pytest_dlperf.config.systems import System, system_of_text
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.formats.log_format import LogFormat, Ranks
from pytest_dlperf.formats.meanings import Trainer, trainers_in
from pytest_dlperf.logs.cross_check import CrossCheck, cross_check
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import StepsIn, Timing, Work
from pytest_dlperf.survey.case import case_of, known_of
from pytest_dlperf.survey.expressions import StatedFact, metric_records, stated_facts, with_stamp
from pytest_dlperf.survey.first_system import Form, ShippedSystem, Starter
from pytest_dlperf.survey.guess import Guess, guess_of_table, guesses
from pytest_dlperf.survey.head import FoundFact, HeadOfLog, StepsOfLog

_USUAL_WARMUP: Final = 20
_USUAL_STEPS: Final = 100
_FEW: Final = 70
_RECORDS: Final = ("record", "json", "csv")
_NAMES: Final = {"model": "what ids call it, as in llama3_8b"}
"""What no log tells, and is marked in the system file alone."""
_ENOUGH: Final = 50
_GUESSES: Final = 5
"""Guesses at most that are held against the rest of their lines."""


class Identification(Struct, frozen=True, kw_only=True):
    """What a log is, and as what it is read."""

    kind: str
    """What it is called: a log of …"""
    system: System
    """One of the project's, or one made for this log."""
    case: Case
    """The run that it is taken for."""
    batch_source: str
    """Where the batch of the case comes from; empty if unknown."""
    steps: StepsOfLog
    facts: Sequence[FoundFact] = ()
    cases: Sequence[Case] = ()
    """The cases of the project that the log does not contradict."""
    starter: Starter | None = None
    """What a system file of it begins with, where the project has none."""
    guess: Guess | None = None
    trainer: Trainer | None = None
    checked: CrossCheck = CrossCheck()
    """What else the lines say of the time that is taken of them."""
    unsure: list[str] = []


def identify(
    head: HeadOfLog,
    systems: Mapping[str, System],
    formats: Mapping[str, LogFormat],
    wanted: Case | None,
) -> Identification | None:
    """Find out what a log is; ``None`` where nothing fits and nothing can be guessed."""
    systems = {name: system for name, system in systems.items() if not system.is_probe}
    found = _of_project(head, systems, wanted)
    if found is not None:
        return found
    mine = {system.log_format.name for system in systems.values()}
    make = partial(_made, head, wanted=wanted, systems=systems, formats=formats)
    others = [each for name, each in formats.items() if name not in mine]
    trainer = head.trainer()
    for log_format in head.formats_of(others):
        kind = f"a log of format {log_format.name}"
        made = make(kind, log_format.name)
        if made is not None:
            return made
    if trainer is not None and (made := _of_trainer(head, make, trainer)) is not None:
        return made
    table = guess_of_table(head.begin)
    guessed = guesses(head.clusters.repeated) if table is None else [table]
    kind = f"a log of {trainer.name}" if trainer else "a log of an unknown trainer"
    kind += "; how it shows a step is a guess"
    fitting: list[Identification] = []
    for each in guessed[:_GUESSES]:
        for form in each.formats:
            made = make(kind, form, trainer=trainer, guessed=each)
            if made is not None and made.steps.records >= min(each.count, _ENOUGH):
                fitting.append(made)
                break
        if fitting and not fitting[-1].checked.contradictions:
            return fitting[-1]
    if fitting:
        return fitting[0]
    # Many trainers show a bar beside their lines: it is taken where there is nothing else.
    bars = () if trainer is not None else trainers_in(head.clusters.examples)
    return next(filter(None, (_of_trainer(head, make, each) for each in bars)), None)


def _of_trainer(
    head: HeadOfLog, make: Callable[..., Identification | None], trainer: Trainer
) -> Identification | None:
    """Read a log as a known trainer's: by the system that ships, or else by a format."""
    kind = f"a log of {trainer.name}"
    forms: list[Form] = [trainer.own_format] if trainer.own_format else []
    record = trainer.own_format.get("record", "")
    # Without a time of its own, a line may begin with one.
    if set(re.findall(r"\?P<(\w+)>", record)) == {"step"}:
        stamped = with_stamp(head.clusters.repeated, record)
        forms = [{**trainer.own_format, "record": stamped}, *forms] if stamped else forms
    if trainer.system in shipped_systems():
        forms.insert(0, ShippedSystem(trainer.system))
    return next(filter(None, (make(kind, form, trainer=trainer) for form in forms)), None)


# --------------------------------------------------------------------- the project's systems


def _of_project(
    head: HeadOfLog, systems: Mapping[str, System], wanted: Case | None
) -> Identification | None:
    named = systems.get(wanted.system) if wanted is not None else None
    tried = [named] if named is not None else list(systems.values())
    by_format = {_key(system): system.log_format for system in tried}
    for log_format in head.formats_of(by_format.values()):
        mine = [system for system in tried if by_format[_key(system)] is log_format]
        steps = head.steps(log_format)
        if steps is None or not mine:
            continue
        facts = head.facts(log_format)
        fitting = [
            (system, case)
            for system in mine
            for case in system.cases
            if _agrees(case, log_format, facts, steps)
        ]
        unsure: list[str] = []
        case, source = wanted, "as --case says"
        if case is None:
            alike = {(each.work, each.topology, each.system) for _, each in fitting}
            case = fitting[0][1] if len(alike) == 1 else None
            source = "as the only cases have it that fit"
            if case is not None and not facts:
                unsure.append("global_batch: the log does not say it")
        owner = next((s for s in mine if case is not None and s.id == case.system), None)
        owner = owner or (fitting[0][0] if fitting else mine[0])
        if case is None:
            known = known_of(facts)
            case, source, doubts = case_of(owner, known, log_format, steps, wanted, facts)
            unsure = [f"{key}: {doubt}" for key, doubt in doubts.items()]
        kind = f"a log of format {log_format.name}"
        if log_format.name == owner.file.stem:
            kind = f"a log as {owner.file} declares it"
        checked = cross_check(head.path, owner.log_format, case, knows_batch=bool(source))
        return Identification(
            kind=kind,
            system=owner,
            checked=checked,
            case=case,
            batch_source=source,
            steps=steps,
            facts=facts,
            cases=[case for _, case in fitting],
            unsure=unsure,
        )
    return None


def _key(system: System) -> tuple[str, str | bytes]:
    """Tell formats apart: systems may share one, and have other facts to compare."""
    return system.log_format.name, system.log_format.record.pattern


def _agrees(
    case: Case, log_format: LogFormat, facts: Iterable[FoundFact], steps: StepsOfLog
) -> bool:
    for found in facts:
        fact = found.fact
        if fact.option is not None and fact.option not in log_format.options:
            continue
        # What stands there twice is replaced by another fact, or is of another program.
        if fact.declared(case) is not None and not any(
            fact.agrees(value, case) for value in found.values
        ):
            return False
    all_print = log_format.ranks is Ranks.LOCAL
    return not all_print or steps.printers in (
        case.topology.devices_per_node,
        case.topology.world_size,
    )


# ------------------------------------------------------------------------- systems made up


def _made(  # noqa: PLR0913 - all that is known by then
    head: HeadOfLog,
    kind: str,
    log_format: Form,
    *,
    wanted: Case | None,
    systems: Mapping[str, System],
    formats: Mapping[str, LogFormat],
    trainer: Trainer | None = None,
    guessed: Guess | None = None,
) -> Identification | None:
    """Make a system of a format, and a case of what the log says."""
    draft = _starter(head, log_format, trainer, systems)
    system = _system(draft, formats)
    steps = None if system is None else head.steps(system.log_format)
    if system is None or steps is None:
        return None
    is_shipped = isinstance(log_format, ShippedSystem)
    facts = head.facts(_format_with_facts(system, trainer, formats))
    said = {} if isinstance(log_format, str) else {one.name: one for one in stated_facts(head.text)}
    # What is called a batch may be that of a micro step, of a device, or of all.
    of_words = {name: one.value for name, one in said.items() if name != "batch_per_replica"}
    known = {**of_words, **known_of(facts)}
    case, source, doubts = case_of(system, known, system.log_format, steps, wanted, facts)
    if "batch_per_replica" in said and "global_batch" in doubts:
        doubts["global_batch"] += f", only {said['batch_per_replica'].text!r}"
    declared = log_format
    if isinstance(log_format, dict):
        declared = _with_facts(log_format, case, said)
        if declared.get("step") == "count":
            doubts["log.format.step"] = "is each record one step? of several, write {every: N}"
        doubts |= {} if guessed is None else guessed.doubts_of(declared)
    declared, case = _of_nodes(declared, system, case, steps.printers, doubts)
    per_token = system.log_format.timing is Timing.TOKENS_PER_SECOND
    unit = "tokens/s" if case.sequence_length is not None or per_token else "samples/s"
    metrics = _metrics(head, system, doubts, is_shipped=is_shipped)
    starter = replace(
        draft,
        framework="" if is_shipped and case.framework == system.framework else case.framework,
        model=case.model,
        unit=unit,
        format=declared,
        window=_window_of(steps, system.log_format.of(case)),
        precision=case.precision,
        work=case.work,
        topology=case.topology,
        options=case.options,
        metrics=metrics,
        unsure={**_NAMES, **doubts},
    )
    final = _system(starter, formats)
    if final is None:
        starter = replace(starter, format=log_format, metrics={})
        final = _system(starter, formats)
    if final is None:
        return None
    checked = cross_check(head.path, final.log_format, final.cases[0], knows_batch=bool(source))
    if checked.contradictions:
        record = isinstance(declared, dict) and next(k for k in _RECORDS if k in declared)
        key = f"log.format.{record}" if record else "global_batch"
        doubts[key] = " ".join([*filter(None, [doubts.get(key)]), *checked.contradictions])
        starter = replace(starter, unsure={**_NAMES, **doubts})
    return Identification(
        checked=checked,
        kind=kind,
        system=final,
        case=final.cases[0],
        batch_source=source,
        steps=head.steps(final.log_format) or steps,
        facts=head.facts(final.log_format) or facts,
        starter=starter,
        guess=guessed,
        trainer=trainer,
        unsure=[f"{key}: {doubt}" for key, doubt in doubts.items()],
    )


def _format_with_facts(
    system: System, trainer: Trainer | None, formats: Mapping[str, LogFormat]
) -> LogFormat:
    """Return the format whose facts are looked for: that of the trainer's system, if one ships."""
    if trainer is None or trainer.system not in shipped_systems() or system.log_format.facts:
        return system.log_format
    example = comment_of(trainer.system)[1]
    return system_of_text(example, Path("shipped.yaml").absolute(), formats).log_format


def _with_facts(
    found: Mapping[str, Any], case: Case, said: Mapping[str, StatedFact]
) -> dict[str, Any]:
    """Declare a format with what the log says of the case, to which others of it are held."""
    confirmed = {
        name: one.record
        for name, one in said.items()
        if name not in {"batch_per_replica", "precision"}
        and str(CASE_FACTS[name](case)) == one.value
    }
    facts = {**confirmed, **found.get("facts", {})}
    return {**found, **({"facts": facts} if facts else {})}


def _metrics(
    head: HeadOfLog, system: System, doubts: dict[str, str], *, is_shipped: bool
) -> dict[str, Any]:
    """Say what a file declares of metrics; of those that ship, what is other here."""
    metrics = metric_records(head.clusters.repeated, system.log_format)
    if not is_shipped:
        return metrics
    # What ships takes the data for such that can be learned.
    has_to_fall = any(each.name == "loss" and each.sanity for each in system.metrics)
    is_flat = metrics.get("loss", {}).get("sanity") == "finite"
    missing = [one.metric.name for one in system.declared if not head.shows(one.record)]
    if missing:
        doubts["metrics"] = f"the log shows no {', no '.join(missing)}"
    flat = {"loss": {"sanity": "finite"}} if has_to_fall and is_flat else {}
    return {**flat, **dict.fromkeys(missing)}


def _of_nodes(
    form: Form, system: System, case: Case, printers: int, doubts: dict[str, str]
) -> tuple[Form, Case]:
    """Take several that print for a process of each node, where one prints as the system ships."""
    is_of_one = printers > 1 and system.log_format.ranks is Ranks.ONE
    if not (is_of_one and isinstance(form, ShippedSystem)):
        return form, case
    world = case.topology.world_size
    doubts["log.format.ranks"] = (
        f"a step stands there {printers} times: by one process of each of so many nodes, by all "
        "processes of one (local), or once for each metric?"
    )
    if "topologies" in doubts or world % printers:
        world = printers
    topology = Topology(printers, world // printers)
    return ShippedSystem(form.name, Ranks.NODES.value), replace(case, topology=topology)


def _starter(
    head: HeadOfLog, log_format: Form, trainer: Trainer | None, systems: Mapping[str, System]
) -> Starter:
    name = trainer.name if trainer is not None else ""
    words = re.findall("[a-z][a-z0-9]*", name.lower().replace("nvidia's", "").replace("-lm", ""))
    framework = words[0] if words else "own"
    if isinstance(log_format, ShippedSystem):
        framework = log_format.name
    model = next(
        each
        for each in ("model", *(f"model{number}" for number in range(2, 1000)))
        if f"{framework}-{each}" not in systems
    )
    log_name = re.sub(r"[^A-Za-z0-9]+", "_", head.path.stem).strip("_") or "train"
    timing = dict(log_format) if isinstance(log_format, dict) else {}
    per_token = "tokens_per_second" in str(timing) or isinstance(log_format, ShippedSystem)
    return Starter(
        source=head.path.name if head.path.name.isprintable() else "a log",
        framework="" if isinstance(log_format, ShippedSystem) else framework,
        model=model,
        unit="tokens/s" if per_token else "samples/s",
        log_name=log_name,
        format=log_format,
        window=Window(warmup_steps=1, measured_steps=1),
        precision="fp32",
        work=Work(batch=1, is_global=True, sequence_length=1 if per_token else None),
        topology=Topology(1, 1),
    )


def _system(starter: Starter, formats: Mapping[str, LogFormat]) -> System | None:
    try:
        return system_of_text(starter.file().text(), Path(f"{starter.framework}.yaml"), formats)
    except YamlError:
        return None


def _window_of(steps: StepsOfLog, log_format: LogFormat) -> Window:
    """Choose which steps to measure of those that a log shows: from one record to another."""
    counted_per_step = log_format.counted_per_step if steps.interval > 1 else 1
    interval = max(steps.interval // counted_per_step, 1)
    settling = log_format.settling_steps
    # Of steps that are counted from 0, every 20th is the 1st, the 21st and so on.
    first = log_format.first_step
    before_first = 1 - (min(steps.first, 1) if first is None else first)
    counted = steps.first // counted_per_step + before_first
    last = steps.total // counted_per_step + counted - interval - settling
    # Of an excerpt, and of a run that goes on, the steps before are not there.
    missing = max(counted - interval, 0)
    usable = last - missing
    # Samples are counted where the batch is unknown, and a record is of one step at least.
    is_of_samples = log_format.steps_in is StepsIn.SAMPLES and counted_per_step == 1
    step = interval if is_of_samples else 1
    warmup = _USUAL_WARMUP * step if usable >= _FEW * step else max(usable // 5, 1)
    offset = (steps.usual // counted_per_step + before_first) % interval
    before = math.ceil((missing + warmup + settling - offset) / interval) * interval + offset
    warmup = max(before, counted) - settling
    measured = min(last - warmup, max(_USUAL_STEPS * step, 10 * interval))
    return Window(warmup_steps=warmup, measured_steps=max(measured // interval * interval, 1))

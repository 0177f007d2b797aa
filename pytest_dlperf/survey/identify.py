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
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.formats.log_format import LogFormat, Ranks
from pytest_dlperf.formats.meanings import Trainer, trainers_in
from pytest_dlperf.logs.cross_check import CrossCheck, cross_check
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import StepsIn, Timing
from pytest_dlperf.survey.case import case_of
from pytest_dlperf.survey.draft import Draft, case_keys, window_keys
from pytest_dlperf.survey.expressions import StatedFact, metric_records, stated_facts, with_stamp
from pytest_dlperf.survey.guess import Guess, guess_of_table, guesses
from pytest_dlperf.survey.head import FoundFact, HeadOfLog, StepsOfLog

_USUAL_WARMUP: Final = 20
_USUAL_STEPS: Final = 100
_FEW: Final = 70
_NAMES: Final = {"model": "what ids call it, as in llama3_8b"}
"""What no log tells, and is marked in the system file alone."""
_ENOUGH: Final = 50
_GUESSES: Final = 8
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
    facts: Sequence[FoundFact]
    checked: CrossCheck
    """What else the lines say of the time that is taken of them."""
    unsure: list[str]
    cases: Sequence[Case] = ()
    """The cases of the project that the log does not contradict."""
    draft: Draft | None = None
    """A first system file, where the project has none."""
    others: Sequence[str] = ()
    """What else could be the time, where a guess takes one number for it."""
    trainer: Trainer | None = None


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
    make = partial(_made, head, systems, formats, wanted)
    for log_format in head.formats_of(each for name, each in formats.items() if name not in mine):
        if made := make(f"a log of format {log_format.name}", log_format.name):
            return made
    trainer = head.trainer()
    if trainer is not None and (made := _of_trainer(head, make, trainer)):
        return made
    table = guess_of_table(head.begin)
    kind = f"a log of {trainer.name if trainer else 'an unknown trainer'}"
    fitting: list[Identification] = []
    for guess in (guesses(head.clusters.repeated) if table is None else [table])[:_GUESSES]:
        kind_of_guess = f"{kind}; how it shows a step is a guess"
        made = make(kind_of_guess, guess.format, trainer=trainer, guess=guess)
        if made is not None and made.steps.records >= min(guess.count, _ENOUGH):
            if not made.checked.contradictions:
                return made
            fitting.append(made)
    if fitting:
        return fitting[0]
    # Many trainers show a bar beside their lines: it is taken where there is nothing else.
    bars = () if trainer is not None else trainers_in(head.clusters.examples)
    return next(filter(None, (_of_trainer(head, make, each) for each in bars)), None)


def _of_trainer(
    head: HeadOfLog, make: Callable[..., Identification | None], trainer: Trainer
) -> Identification | None:
    """Read a log as a known trainer's: by the system that ships, or else by a format."""
    kind, record = f"a log of {trainer.name}", trainer.own_format.get("record", "")
    forms = [trainer.own_format] if trainer.own_format else []
    # Without a time of its own, a line may begin with one.
    if set(re.findall(r"\?P<(\w+)>", record)) == {"step"}:
        stamped = with_stamp(head.clusters.repeated, record)
        forms = [{**trainer.own_format, "record": stamped}, *forms] if stamped else forms
    if trainer.system in shipped_systems():
        forms.insert(0, {})  # that of the system
    return next(filter(None, (make(kind, form, trainer=trainer) for form in forms)), None)


# --------------------------------------------------------------------- the project's systems


def _of_project(
    head: HeadOfLog, systems: Mapping[str, System], wanted: Case | None
) -> Identification | None:
    named = systems.get(wanted.system) if wanted is not None else None
    tried = [named] if named is not None else list(systems.values())
    # Systems may share a format, and have other facts to compare.
    by_format = {(s.log_format.name, s.log_format.record.pattern): s.log_format for s in tried}
    for log_format in head.formats_of(by_format.values()):
        mine = [
            each
            for each in tried
            if by_format[each.log_format.name, each.log_format.record.pattern] is log_format
        ]
        steps, facts = head.steps(log_format), head.facts(log_format)
        if steps is None:
            continue
        cases = [each for s in mine for each in s.cases if _agrees(each, log_format, facts, steps)]
        unsure: list[str] = []
        case, source = wanted, "as --case says"
        if case is None and len({(each.work, each.topology, each.system) for each in cases}) == 1:
            case, source = cases[0], "as the only cases have it that fit"
            unsure = [] if facts else ["global_batch: the log does not say it"]
        of = {s.id: s for s in mine}
        system = of.get((case or (cases[0] if cases else mine[0].cases[0])).system, mine[0])
        if case is None:
            case, source, doubts = case_of(system, {}, steps, facts)
            unsure = [f"{key}: {doubt}" for key, doubt in doubts.items()]
        kind = f"a log of format {log_format.name}"
        if log_format.name == system.file.stem:
            kind = f"a log as {system.file} declares it"
        return Identification(
            kind=kind,
            system=system,
            case=case,
            batch_source=source,
            steps=steps,
            facts=facts,
            checked=cross_check(head.path, system.log_format, case, knows_batch=bool(source)),
            unsure=unsure,
            cases=cases,
        )
    return None


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
    of_ranks = (case.topology.devices_per_node, case.topology.world_size)
    return log_format.ranks is not Ranks.LOCAL or steps.printers in of_ranks


# ------------------------------------------------------------------------- systems made up


def _made(  # noqa: PLR0913, PLR0917 - all that is known by then
    head: HeadOfLog,
    systems: Mapping[str, System],
    formats: Mapping[str, LogFormat],
    wanted: Case | None,
    kind: str,
    form: str | Mapping[str, Any],
    *,
    trainer: Trainer | None = None,
    guess: Guess | None = None,
) -> Identification | None:
    """Draft a system that reads a log by a format: a shipped one's name, or what declares it.

    Without either it is that of the system that ships for the trainer.
    """
    ships = trainer.system if trainer is not None and not form else ""
    draft = _begun(head, systems, form, trainer, ships)
    begun = draft.system(formats)
    steps = None if begun is None else head.steps(begun.log_format)
    if begun is None or steps is None:
        return None
    facts = head.facts(_format_with_facts(begun, trainer, formats))
    said = {} if isinstance(form, str) else stated_facts(head.text)
    # What is called a batch may be that of a micro step, of a device, or of all.
    of_one = said.pop("batch_per_replica", None)
    stated = {name: one.value for name, one in said.items()}
    case, source, doubts = case_of(begun, stated, steps, facts)
    if of_one is not None and "global_batch" in doubts:
        doubts["global_batch"] += f", only {of_one.text!r}"
    if wanted is not None:
        case, source, doubts = wanted, "as --case says", {}
    metrics: dict[str, Any] = metric_records(head.clusters.repeated, begun.log_format)
    if ships:
        metrics = _other_metrics(head, begun, metrics, doubts)
        case = _of_nodes(draft, begun, case, steps.printers, doubts)
    elif not isinstance(form, str):
        draft.keys["log"]["format"] = _with_facts(form, case, said)
        if form.get("step") == "count":
            doubts["log.format.step"] = "is each record one step? of several, write {every: N}"
        doubts |= {} if guess is None else guess.doubts
    _complete(draft, begun, case, _window_of(steps, begun.log_format.of(case)), metrics)
    draft.unsure = {**_NAMES, **doubts}
    system = draft.system(formats)
    if system is None:
        return None
    case = system.cases[0]
    checked = cross_check(head.path, system.log_format, case, knows_batch=bool(source))
    if checked.contradictions:
        record = f"log.format.{next(iter(form))}" if form and not isinstance(form, str) else ""
        key = record or "global_batch"
        doubts[key] = " ".join([*filter(None, [doubts.get(key)]), *checked.contradictions])
        draft.unsure = {**_NAMES, **doubts}
    return Identification(
        kind=kind,
        system=system,
        case=case,
        batch_source=source,
        steps=head.steps(system.log_format) or steps,
        facts=head.facts(system.log_format) or facts,
        checked=checked,
        unsure=[f"{key}: {doubt}" for key, doubt in doubts.items()],
        draft=draft,
        others=() if guess is None else guess.others,
        trainer=trainer,
    )


def _begun(
    head: HeadOfLog,
    systems: Mapping[str, System],
    form: str | Mapping[str, Any],
    trainer: Trainer | None,
    ships: str,
) -> Draft:
    """Draft a system that reads the log, of a case about which nothing is known."""
    name = trainer.name.lower() if trainer is not None else "own"
    [framework] = re.findall("[a-z][a-z0-9]*", name.replace("nvidia's", ""))[:1] or ["own"]
    framework = ships or framework
    models = ("model", *(f"model{number}" for number in range(2, 1000)))
    model = next(each for each in models if f"{framework}-{each}" not in systems)
    is_of_tokens = bool(ships) or "tokens_per_second" in str(form)
    case = {"precision": "fp32", "global_batch": 1, "topologies": ["1n1g"]}
    keys: dict[str, Any] = {"extends": ships, "model": model}
    if not ships:
        log_name = re.sub(r"[^A-Za-z0-9]+", "_", head.path.stem).strip("_") or "train"
        unit = "tokens/s" if is_of_tokens else "samples/s"
        keys = {"framework": framework, "model": model, "unit": unit}
        keys["log"] = {"name": log_name, "format": form}
    keys["window"] = {"warmup_steps": 1, "measured_steps": 1}
    source = head.path.name if head.path.name.isprintable() else "a log"
    return Draft(
        comments=(f"Made by 'pytest-dlperf read' from {source}.",),
        keys=keys,
        case=case | ({"sequence_length": 1} if is_of_tokens else {}),
    )


def _complete(
    draft: Draft, begun: System, case: Case, window: Window, metrics: Mapping[str, Any]
) -> None:
    """Say in a draft what was found out."""
    if case.framework != begun.framework:
        draft.keys["framework"] = case.framework
    draft.keys["model"] = case.model
    if "unit" in draft.keys:
        per_token = begun.log_format.timing is Timing.TOKENS_PER_SECOND
        is_of_tokens = case.sequence_length is not None or per_token
        draft.keys["unit"] = "tokens/s" if is_of_tokens else "samples/s"
    draft.keys["window"] = window_keys(window)
    draft.keys |= {"metrics": metrics} if metrics else {}
    draft.case = case_keys(case)


def _format_with_facts(
    system: System, trainer: Trainer | None, formats: Mapping[str, LogFormat]
) -> LogFormat:
    """Return the format whose facts are looked for: that of the trainer's system, if one ships."""
    if trainer is None or trainer.system not in shipped_systems() or system.log_format.facts:
        return system.log_format
    example = comment_of(trainer.system)[1]
    return system_of_text(example, Path("shipped.yaml").absolute(), formats).log_format


def _with_facts(
    form: Mapping[str, Any], case: Case, said: Mapping[str, StatedFact]
) -> dict[str, Any]:
    """Declare a format with what the log says of the case, to which others of it are held."""
    confirmed = {
        name: one.record
        for name, one in said.items()
        if name != "precision" and str(CASE_FACTS[name](case)) == one.value
    }
    facts = {**confirmed, **form.get("facts", {})}
    return {**form, **({"facts": facts} if facts else {})}


def _other_metrics(
    head: HeadOfLog, system: System, metrics: Mapping[str, Any], doubts: dict[str, str]
) -> dict[str, Any]:
    """Say which metrics of a system that ships are other in a log."""
    # What ships takes the data for such that can be learned.
    has_to_fall = any(each.name == "loss" and each.sanity for each in system.metrics)
    is_flat = metrics.get("loss", {}).get("sanity") == "finite"
    missing = [one.metric.name for one in system.declared if not head.shows(one.record)]
    if missing:
        doubts["metrics"] = f"the log shows no {', no '.join(missing)}"
    flat = {"loss": {"sanity": "finite"}} if has_to_fall and is_flat else {}
    return {**flat, **dict.fromkeys(missing)}


def _of_nodes(
    draft: Draft, system: System, case: Case, printers: int, doubts: dict[str, str]
) -> Case:
    """Take several that print for a process of each node, where one prints as the system ships."""
    if printers == 1 or system.log_format.ranks is not Ranks.ONE:
        return case
    doubts["log.format.ranks"] = (
        f"a step stands there {printers} times: by one process of each of so many nodes, by all "
        "processes of one (local), or once for each metric?"
    )
    draft.keys["log"] = {"format": {"ranks": Ranks.NODES.value}}
    world = case.topology.world_size
    if "topologies" in doubts or world % printers:
        world = printers
    return replace(case, topology=Topology(printers, world // printers))


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

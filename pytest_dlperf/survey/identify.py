"""Find out what a log is: by systems of the project, formats, known trainers, or a guess."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
from pytest_dlperf.model.work import StepsIn
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
    survey = _Survey(head, systems, formats, wanted)
    if found := survey.of_project():
        return found
    mine = {system.log_format.name for system in systems.values()}
    for log_format in head.formats_of(each for name, each in formats.items() if name not in mine):
        if found := survey.made(f"a log of format {log_format.name}", log_format.name):
            return found
    trainer = head.trainer()
    if trainer is not None and (found := survey.of_trainer(trainer)):
        return found
    table = guess_of_table(head.begin)
    kind = f"a log of {trainer.name if trainer else 'an unknown trainer'}"
    fitting: list[Identification] = []
    for guess in (guesses(head.clusters.repeated) if table is None else [table])[:_GUESSES]:
        kind_of_guess = f"{kind}; how it shows a step is a guess"
        found = survey.made(kind_of_guess, guess.format, trainer, guess)
        if found is not None and found.steps.records >= min(guess.count, _ENOUGH):
            if not found.checked.contradictions:
                return found
            fitting.append(found)
    if fitting:
        return fitting[0]
    # Many trainers show a bar beside their lines: it is taken where there is nothing else.
    bars = () if trainer is not None else trainers_in(head.clusters.examples)
    return next(filter(None, map(survey.of_trainer, bars)), None)


class _Survey(Struct, frozen=True):
    """Reads a log as one of several that it may be."""

    head: HeadOfLog
    systems: Mapping[str, System]
    formats: Mapping[str, LogFormat]
    wanted: Case | None

    def of_project(self) -> Identification | None:
        """Read it by the system of the project with most records in it."""
        named = self.systems.get(self.wanted.system) if self.wanted is not None else None
        of_format = defaultdict[tuple[str, str], list[System]](list)
        # Systems may share a format, and have other facts to compare.
        for system in [named] if named is not None else self.systems.values():
            log_format = system.log_format
            of_format[log_format.name, log_format.record.pattern].append(system)
        log_formats = [systems[-1].log_format for systems in of_format.values()]
        for log_format in self.head.formats_of(log_formats):
            steps, facts = self.head.steps(log_format), self.head.facts(log_format)
            if steps is None:
                continue
            mine = of_format[log_format.name, log_format.record.pattern]
            cases = [
                each for s in mine for each in s.cases if _agrees(each, log_format, facts, steps)
            ]
            doubts: dict[str, str] = {}
            case, source = self.wanted, "as --case says"
            if case is None and len({(c.work, c.topology, c.system) for c in cases}) == 1:
                case, source = cases[0], "as the only cases have it that fit"
                doubts = {} if facts else {"global_batch": "the log does not say it"}
            of = (case or (cases or mine[0].cases)[0]).system
            system = next((each for each in mine if each.id == of), mine[0])
            if case is None:
                case, source, doubts = case_of(system, {}, steps, facts)
            is_own = log_format.name == system.file.stem
            named_by = f"as {system.file} declares it" if is_own else f"of format {log_format.name}"
            return Identification(
                kind=f"a log {named_by}",
                system=system,
                case=case,
                batch_source=source,
                steps=steps,
                facts=facts,
                checked=cross_check(
                    self.head.path, system.log_format, case, knows_batch=bool(source)
                ),
                unsure=[f"{key}: {doubt}" for key, doubt in doubts.items()],
                cases=cases,
            )
        return None

    def of_trainer(self, trainer: Trainer) -> Identification | None:
        """Read it as a known trainer's: by the system that ships, or else by a format."""
        kind, form = f"a log of {trainer.name}", trainer.own_format
        record = form.get("record", "")
        forms = [form] if form else []
        # Without a time of its own, a line may begin with one.
        if set(re.findall(r"\?P<(\w+)>", record)) == {"step"}:
            stamped = with_stamp(self.head.clusters.repeated, record)
            forms = [{**form, "record": stamped}, *forms] if stamped else forms
        if trainer.system in shipped_systems():
            forms.insert(0, {})  # that of the system
        return next(filter(None, (self.made(kind, each, trainer) for each in forms)), None)

    def made(
        self,
        kind: str,
        form: str | Mapping[str, Any],
        trainer: Trainer | None = None,
        guess: Guess | None = None,
    ) -> Identification | None:
        """Draft a system that reads it by a format: a shipped one's name, or what declares it.

        Without either it is that of the system that ships for the trainer.
        """
        head = self.head
        ships = trainer.system if trainer is not None and not form else ""
        draft = self._begun(form, trainer, ships)
        begun = draft.system(self.formats)
        steps = None if begun is None else head.steps(begun.log_format)
        if begun is None or steps is None:
            return None
        facts = head.facts(self._with_facts_of(trainer, begun.log_format))
        said = {} if isinstance(form, str) else stated_facts(head.text)
        # What is called a batch may be that of a micro step, of a device, or of all.
        of_one = said.pop("batch_per_replica", None)
        stated = {name: one.value for name, one in said.items()}
        case, source, doubts = case_of(begun, stated, steps, facts)
        if of_one is not None and "global_batch" in doubts:
            doubts["global_batch"] += f", only {of_one.text!r}"
        if self.wanted is not None:
            case, source, doubts = self.wanted, "as --case says", {}
        metrics: dict[str, Any] = metric_records(head.clusters.repeated, begun.log_format)
        if ships:
            metrics = _other_metrics(head, begun, metrics, doubts)
            case = _of_nodes(draft, begun, case, steps.printers, doubts)
        elif not isinstance(form, str):
            draft.keys["log"]["format"] = _with_facts(form, case, said, doubts)
            doubts |= {} if guess is None else guess.doubts
        draft.keys["model"] = case.model
        if case.framework != begun.framework:
            draft.keys["framework"] = case.framework
        if not ships:
            is_of_tokens = case.sequence_length or "tokens_per_second" in str(form)
            draft.keys["unit"] = "tokens/s" if is_of_tokens else "samples/s"
        draft.keys["window"] = window_keys(_window_of(steps, begun.log_format.of(case)))
        draft.keys |= {"metrics": metrics} if metrics else {}
        draft.case, draft.unsure = case_keys(case), {**_NAMES, **doubts}
        system = draft.system(self.formats)
        if system is None:
            return None
        case = system.cases[0]
        checked = cross_check(head.path, system.log_format, case, knows_batch=bool(source))
        if checked.contradictions:
            is_declared = form and not isinstance(form, str)
            key = f"log.format.{next(iter(form))}" if is_declared else "global_batch"
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

    def _with_facts_of(self, trainer: Trainer | None, log_format: LogFormat) -> LogFormat:
        """Return the format whose facts are looked for: that of the trainer's system, if it has."""
        if trainer is None or trainer.system not in shipped_systems() or log_format.facts:
            return log_format
        example, file = comment_of(trainer.system)[1], Path("shipped.yaml").absolute()
        return system_of_text(example, file, self.formats).log_format

    def _begun(self, form: str | Mapping[str, Any], trainer: Trainer | None, ships: str) -> Draft:
        """Draft a system that reads the log, of a case about which nothing is known."""
        name = trainer.name.lower().replace("nvidia's", "") if trainer is not None else "own"
        framework = ships or (re.findall("[a-z][a-z0-9]*", name) or ["own"])[0]
        models = ("model", *(f"model{number}" for number in range(2, 1000)))
        model = next(each for each in models if f"{framework}-{each}" not in self.systems)
        case = {"precision": "fp32", "global_batch": 1, "topologies": ["1n1g"]}
        is_of_tokens = bool(ships) or "tokens_per_second" in str(form)
        keys: dict[str, Any] = {"extends": ships, "model": model}
        if not ships:
            log_name = re.sub(r"[^A-Za-z0-9]+", "_", self.head.path.stem).strip("_") or "train"
            unit = "tokens/s" if is_of_tokens else "samples/s"
            keys = {"framework": framework, "model": model, "unit": unit}
            keys["log"] = {"name": log_name, "format": form}
        keys["window"] = {"warmup_steps": 1, "measured_steps": 1}
        source = self.head.path.name if self.head.path.name.isprintable() else "a log"
        return Draft(
            comments=(f"Made by 'pytest-dlperf read' from {source}.",),
            keys=keys,
            case=case | ({"sequence_length": 1} if is_of_tokens else {}),
        )


def _agrees(
    case: Case, log_format: LogFormat, facts: Iterable[FoundFact], steps: StepsOfLog
) -> bool:
    for found in facts:
        fact = found.fact
        is_compared = fact.option is None or fact.option in log_format.options
        # What stands there twice is replaced by another fact, or is of another program.
        is_compared &= fact.declared(case) is not None
        if is_compared and not any(fact.agrees(value, case) for value in found.values):
            return False
    of_ranks = (case.topology.devices_per_node, case.topology.world_size)
    return log_format.ranks is not Ranks.LOCAL or steps.printers in of_ranks


def _with_facts(
    form: Mapping[str, Any], case: Case, said: Mapping[str, StatedFact], doubts: dict[str, str]
) -> dict[str, Any]:
    """Declare a format with what the log says of the case, to which others of it are held."""
    if form.get("step") == "count":
        doubts["log.format.step"] = "is each record one step? of several, write {every: N}"
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

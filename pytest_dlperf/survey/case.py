"""The case that a log is of, as far as the log and the user say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.config.systems import System
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.formats.log_format import LogFormat, Ranks
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.work import Layout, Work, counts_tokens
from pytest_dlperf.survey.head import FoundFact, StepsOfLog

_USUAL_DEVICES: Final = 8
"""Devices of a node, where there are more than these and nothing says how many."""
UNSAID_BY_LOG: Final = "the log does not say it"
_PRECISIONS: Final = ("fp32", "amp", "fp16", "bf16", "fp8", "tf32")


def known_of(facts: Iterable[FoundFact]) -> dict[str, str]:
    """Say by the names of a case what a log says once."""
    names = {getter: name for name, getter in CASE_FACTS.items()}
    found = {}
    for each in facts:
        name = names.get(each.fact.declared)
        if name is not None and len(each.values) == 1:
            found[name] = each.values[0]
    return found


def case_of(  # noqa: PLR0913, PLR0917 - all that says something of it
    system: System,
    known: Mapping[str, str],
    log_format: LogFormat,
    steps: StepsOfLog,
    wanted: Case | None,
    facts: Sequence[FoundFact],
) -> tuple[Case, str, dict[str, str]]:
    """Derive the case from a log; return it with the source of its batch and what is uncertain."""
    if wanted is not None:
        return wanted, "as --case says", {}
    doubts: dict[str, str] = {}
    numbers = {
        name: int(value) for name, value in known.items() if value.isdigit() and int(value) > 0
    }
    topology = _topology(numbers, log_format, steps, doubts)
    layout = Layout(**{way: numbers.get(way, 1) for way in ("tp", "pp", "cp")})
    if topology.world_size % layout.devices:
        layout = Layout()
    replicas = topology.world_size // layout.devices
    batch, source = _batch(numbers, replicas)
    if batch is None or batch % replicas:
        source = ""
        batch = replicas
        doubts["global_batch"] = "the samples of a step of the whole run stand nowhere"
    precision = known.get("precision", "")
    if not re.fullmatch("[a-z][a-z0-9]*", precision):
        precision = "fp32"
        doubts["precision"] = UNSAID_BY_LOG
    length = numbers.get("sequence_length")
    if length is None and counts_tokens(system.unit):
        length = 1
        doubts["sequence_length"] = "the tokens of a sample stand nowhere"
    case = Case(
        framework=system.framework,
        model=system.model,
        precision=precision,
        work=Work(batch=batch, is_global=True, sequence_length=length, layout=layout),
        topology=topology,
        reference_topology=None,
    )
    if not source:
        case, source = _fitting(case, facts)
        if source:
            doubts.pop("global_batch", None)
    return _with_stated_facts(case, facts, doubts), source, doubts


def _with_stated_facts(case: Case, facts: Iterable[FoundFact], doubts: dict[str, str]) -> Case:
    """Give the case the precision and the options with which the facts agree."""
    said = [(each.fact, each.values[0]) for each in facts if len(each.values) == 1]
    every = [replace(case, precision=precision) for precision in _PRECISIONS]
    amp = every[1]
    of_precision = [pair for pair in said if pair[0].declared(amp) == amp.precision]
    agreeing = [
        tried for tried in every if all(fact.agrees(text, tried) for fact, text in of_precision)
    ]
    if of_precision and agreeing:
        case = agreeing[0]
        doubts.pop("precision", None)
        if len(agreeing) > 1:
            names = ", ".join(each.precision for each in agreeing)
            doubts["precision"] = f"the log agrees with {names}"
    for fact, text in said:
        if fact.option is not None and not fact.agrees(text, case):
            with_option = replace(case, options=tuple(sorted({*case.options, fact.option})))
            case = with_option if fact.agrees(text, with_option) else case
    return case


def _fitting(case: Case, facts: Iterable[FoundFact]) -> tuple[Case, str]:
    """Find the batch with which the case agrees with a fact of another kind, as of a node's."""
    for found in facts:
        fact = found.fact
        if fact.declared in CASE_FACTS.values() or fact.option is not None:
            continue
        for value in filter(str.isdigit, found.values):
            for times in (1, case.topology.nodes, case.replicas):
                batch = int(value[:9]) * times
                if not batch or batch % case.replicas:
                    continue
                tried = replace(case, work=replace(case.training_work, batch=batch))
                if fact.declared(tried) is not None and fact.agrees(value, tried):
                    return tried, f"from {fact.name} {value}, as the log says"
    return case, ""


def _topology(
    numbers: Mapping[str, int], log_format: LogFormat, steps: StepsOfLog, doubts: dict[str, str]
) -> Topology:
    world = numbers.get("world_size")
    nodes, per_node = numbers.get("nodes"), numbers.get("devices_per_node")
    if world is not None and (nodes or per_node) and world % (nodes or per_node or 1) == 0:
        nodes, per_node = nodes or world // (per_node or 1), per_node or world // (nodes or 1)
    if per_node is not None:
        if nodes is None:
            doubts["topologies"] = f"the log says {per_node} devices of a node, not how many nodes"
        return Topology(nodes or 1, per_node)
    printers = steps.printers if log_format.ranks is Ranks.LOCAL or steps.printers > 1 else None
    if world is None:
        doubts["topologies"] = "how many nodes and devices there were stands nowhere"
        if steps.printers_are_unknown:
            # Several that print look like one that takes more steps.
            doubts["topologies"] = "every rank prints, how many stands nowhere: --case says it"
        layout = math.prod(numbers.get(way, 1) for way in ("tp", "pp", "cp"))
        return Topology(1, max(printers or 1, layout))
    if printers is not None and world % printers == 0:
        return Topology(world // printers, printers)
    if world > _USUAL_DEVICES and world % _USUAL_DEVICES == 0:
        doubts["topologies"] = f"the log says {world} devices, not of how many nodes"
        return Topology(world // _USUAL_DEVICES, _USUAL_DEVICES)
    return Topology(1, world)


def _batch(numbers: Mapping[str, int], replicas: int) -> tuple[int | None, str]:
    if "global_batch" in numbers:
        return numbers["global_batch"], "as the log says"
    if "batch_per_replica" in numbers:
        each = numbers["batch_per_replica"]
        return each * replicas, f"from {each} of each replica, as the log says"
    return None, ""

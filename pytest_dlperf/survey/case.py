"""The case that a log is of, as far as the log says it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.config.systems import System
from pytest_dlperf.formats.facts import CASE_FACTS, Fact
from pytest_dlperf.formats.log_format import Ranks
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.work import TOKENS, Layout, Work
from pytest_dlperf.survey.head import FoundFact, StepsOfLog

_USUAL_DEVICES: Final = 8
"""Devices of a node, where there are more than these and nothing says how many."""
UNSAID: Final = "the log does not say it"
_PRECISIONS: Final = ("fp32", "amp", "fp16", "bf16", "fp8", "tf32")


def case_of(
    system: System, stated: Mapping[str, str], steps: StepsOfLog, facts: Sequence[FoundFact]
) -> tuple[Case, str, dict[str, str]]:
    """Derive the case from the facts of a format, and from what else is stated.

    Return it with the source of its batch, which is empty if nothing says it, and what is in doubt.
    """
    doubts: dict[str, str] = {}
    names = {getter: name for name, getter in CASE_FACTS.items()}
    once = [(each.fact, each.values[0]) for each in facts if len(each.values) == 1]
    known = {**stated, **{names.get(fact.declared, ""): text for fact, text in once}}
    numbers = {name: int(text) for name, text in known.items() if text.isdigit() and int(text) > 0}
    layout = Layout(**{way: numbers.get(way, 1) for way in ("tp", "pp", "cp")})
    topology, doubt = _topology(numbers, layout, system, steps)
    if doubt:
        doubts["topologies"] = doubt
    if topology.world_size % layout.devices:
        layout = Layout()
    replicas = topology.world_size // layout.devices
    batch, source = numbers.get("global_batch"), "as the log says"
    if batch is None and (each := numbers.get("batch_per_replica")):
        batch, source = each * replicas, f"from {each} of each replica, as the log says"
    if batch is None or batch % replicas:
        batch, source = replicas, ""
        doubts["global_batch"] = "the samples of a step of the whole run stand nowhere"
    length = numbers.get("sequence_length")
    if length is None and system.unit == TOKENS:
        length = 1
        doubts["sequence_length"] = "the tokens of a sample stand nowhere"
    case = Case(
        framework=system.framework,
        model=system.model,
        precision="fp32",
        work=Work(batch=batch, is_global=True, sequence_length=length, layout=layout),
        topology=topology,
        reference_topology=None,
    )
    case, doubt = _with_precision(case, known.get("precision", ""), once)
    if doubt:
        doubts["precision"] = doubt
    for fact, text in once:
        if fact.option is not None and not fact.agrees(text, case):
            with_option = replace(case, options=tuple(sorted({*case.options, fact.option})))
            case = with_option if fact.agrees(text, with_option) else case
    return case, source, doubts


def _with_precision(case: Case, stated: str, said: Sequence[tuple[Fact, str]]) -> tuple[Case, str]:
    """Give a case the precision with which all facts agree, or that is stated; say what is not."""
    # A word that no other precision means is one of its own.
    own = [stated] if re.fullmatch("[a-z][a-z0-9]*", stated) else []
    every = [replace(case, precision=each) for each in dict.fromkeys((*_PRECISIONS, *own))]
    said = [pair for pair in said if pair[0].declared(every[1]) == every[1].precision]
    agreeing = [each for each in every if all(fact.agrees(text, each) for fact, text in said)]
    if said and agreeing:
        words = ", ".join(each.precision for each in agreeing)
        return agreeing[0], f"the log agrees with {words}" if len(agreeing) > 1 else ""
    return (replace(case, precision=own[0]), "") if own else (case, UNSAID)


def _topology(
    numbers: Mapping[str, int], layout: Layout, system: System, steps: StepsOfLog
) -> tuple[Topology, str]:
    """Return nodes and devices, and what is in doubt about them."""
    world, nodes = numbers.get("world_size"), numbers.get("nodes")
    per_node = numbers.get("devices_per_node")
    if world is not None and world % (nodes or per_node or world) == 0:
        nodes = nodes or (world // per_node if per_node else None)
        per_node = per_node or (world // nodes if nodes else None)
    if per_node is not None:
        doubt = "" if nodes else f"the log says {per_node} devices of a node, not how many nodes"
        return Topology(nodes or 1, per_node), doubt
    is_local = system.log_format.ranks is Ranks.LOCAL
    printers = steps.printers if steps.printers > 1 or is_local else 0
    if world is None:
        doubt = "how many nodes and devices there were stands nowhere"
        if steps.printers_are_unknown:
            # Several that print look like one that takes more steps.
            doubt = "every rank prints, how many stands nowhere: --case says it"
        return Topology(1, max(printers, layout.devices)), doubt
    if printers and world % printers == 0:
        return Topology(world // printers, printers), ""
    if world > _USUAL_DEVICES and world % _USUAL_DEVICES == 0:
        doubt = f"the log says {world} devices, not of how many nodes"
        return Topology(world // _USUAL_DEVICES, _USUAL_DEVICES), doubt
    return Topology(1, world), ""

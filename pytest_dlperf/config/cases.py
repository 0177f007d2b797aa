"""The cases that the entries of a system file name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from msgspec.structs import asdict

from pytest_dlperf.config.system_file import NO_REFERENCE, Entry, Flops, SystemFile
from pytest_dlperf.files.mistakes import KeyPath
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.keys import many
from pytest_dlperf.model.work import ONE_DEVICE, TOKENS, Layout, Work

_BATCHES: Final = ("batch_per_device", "batch_per_replica", "global_batch")
_OF_ALL: Final = ("axes", "topologies", "reference")
"""What an entry says of a training as of a probe."""


def build_cases(file: YamlFile, keys: SystemFile) -> tuple[Case, ...]:
    """Make the cases of all entries, but for those of which a mistake is reported."""
    cases: dict[Case, KeyPath] = {}
    for index, entry in enumerate(keys.cases):
        flops = _said(entry, *Flops.__struct_fields__) or _said(keys, *Flops.__struct_fields__)
        mistakes = list(
            _mistakes(entry, keys.unit, flops) if keys.unit else _mistakes_of_probe(entry)
        )
        first = keys.cases[0].axes
        if entry.axes.keys() != first.keys():
            axes, of_first = (", ".join(names) or "none" for names in (entry.axes, first))
            message = f"it has the axes {axes}, the first one {of_first}; all cases have the same"
            mistakes.append(((), message))
        for path, message in mistakes:
            file.error(("cases", index, *path), message)
        is_scaled = keys.unit is not None and entry.reference != NO_REFERENCE
        varied = () if mistakes else product(enumerate(entry.topologies), _variants(entry, flops))
        for (number, topology), variant in varied:
            place: KeyPath = ("cases", index, "topologies", number)
            try:
                case = Case(
                    framework=keys.framework,
                    model=keys.model,
                    options=tuple(sorted(entry.options)),
                    topology=Topology.parse(topology),
                    reference_topology=Topology.parse(entry.reference) if is_scaled else None,
                    **variant,
                )
            except ValueError as error:
                file.error(place, str(error))
                continue
            if cases.setdefault(case, place) is not place:
                line = file.place(cases[case]).line
                file.error(place, f"{case.id} is named twice; first on line {line}")
    return tuple(cases)


def _said(keys: Entry | SystemFile, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(keys, name))}


def _variants(entry: Entry, flops: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yield what a case is made of beside its topology, for each combination of listed values."""
    if not (batches := _said(entry, *_BATCHES)):
        for values in product(*map(many, entry.axes.values())):
            yield {"free_axes": dict(zip(entry.axes, values, strict=True))}
        return
    for precision, batch, length, layout in product(
        many(entry.precision),
        *map(many, batches.values()),
        many(entry.sequence_length) or (None,),
        many(entry.parallel) or (ONE_DEVICE,),
    ):
        of_sample = flops.get("flops_per_sample")
        if "flops_per_token" in flops:
            of_sample = flops["flops_per_token"] * (length or 0)
        yield {
            "precision": precision,
            "work": Work(
                batch=batch,
                is_global="global_batch" in batches,
                sequence_length=length,
                layout=Layout(**asdict(layout)),
            ),
            "flops_per_sample": of_sample,
        }


def _mistakes_of_probe(entry: Entry) -> Iterator[tuple[KeyPath, str]]:
    for key in Entry.__struct_fields__:
        if key not in _OF_ALL and getattr(entry, key):
            message = (
                f"{key!r} is of trainings; this system has no 'window' and no 'unit', so it is "
                f"a probe, which has 'axes: {{{key}: […]}}' for what differs between its cases"
            )
            yield (key,), message


def _mistakes(entry: Entry, unit: str, flops: dict[str, float]) -> Iterator[tuple[KeyPath, str]]:
    """List contradictions between the values of a training's entry, by key path."""
    if entry.axes:
        yield ("axes",), "is of probes, which have neither 'window' nor 'unit'; use 'options'"
    if not entry.precision:
        yield (), "the key 'precision' is missing"
    if len(batches := _said(entry, *_BATCHES)) != 1:
        allowed = "batch_per_device (batch_per_replica with 'parallel') and global_batch"
        written = " and ".join(batches) or "none of them"
        yield (), f"a case has one of {allowed}; found {written}"
    if entry.parallel and entry.batch_per_device:
        message = "with 'parallel' a replica takes more than one device; write "
        yield ("batch_per_device",), f"{message}batch_per_replica, or all of it as global_batch"
    if len(flops) > 1:
        yield (), f"{' and '.join(flops)} say the same; give one"
    counts = [f"throughput in {unit}"] if unit == TOKENS else []
    for what in (*counts, *flops)[:1] if not entry.sequence_length else ():
        if what != "flops_per_sample":
            yield (), f"{what} needs 'sequence_length' here: how many tokens a sample is"

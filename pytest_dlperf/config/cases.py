"""The ``cases`` of a system file: its entries, and the cases that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Annotated, Final

from msgspec import Meta, Struct

from pytest_dlperf.config.parts import (
    TOPOLOGY,
    Name,
    OneOrMore,
    Operations,
    Part,
    Positive,
    Precision,
    Scalar,
    SomeOf,
    TopologyText,
    doc,
    many,
    of_model,
)
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.model.case import Case, Topology, check_axis, check_name
from pytest_dlperf.model.work import ONE_DEVICE, Layout, Work, counts_tokens

NO_REFERENCE: Final = "none"


class Flops(Part, frozen=True, kw_only=True):
    """Floating-point operations that a training needs, for a token or for a sample."""

    flops_per_token: Annotated[
        Operations | None,
        doc("Operations that training on one token takes, forward and backward; for mfu."),
    ] = None
    flops_per_sample: Annotated[Operations | None, doc("The same for one sample.")] = None

    @property
    def flops(self) -> dict[str, float]:
        """Those of the two keys that are set."""
        return {key: n for key in Flops.__struct_fields__ if (n := getattr(self, key)) is not None}


class LayoutKeys(Layout, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one model is spread over devices."""


class Entry(Flops, frozen=True, kw_only=True):
    """One entry of ``cases``: a case for each combination of listed values."""

    precision: Annotated[
        OneOrMore[Precision],
        doc(
            "Precision of the training, as in fp32. Of lists here, and as batch, length or layout, "
            "each combination is a case."
        ),
    ] = ()
    axes: Annotated[
        dict[str, OneOrMore[Scalar]],
        doc("What the cases of a probe differ by: one for each combination of values."),
    ] = {}
    batch_per_device: Annotated[
        OneOrMore[Positive], doc("Samples that one device takes in a step.")
    ] = ()
    batch_per_replica: Annotated[
        OneOrMore[Positive],
        doc("Its name with 'parallel': samples of one data-parallel replica in a step."),
    ] = ()
    global_batch: Annotated[
        OneOrMore[Positive], doc("Samples of the whole run in a step, instead of those.")
    ] = ()
    sequence_length: Annotated[OneOrMore[Positive], doc("Tokens of one sample.")] = ()
    parallel: Annotated[
        OneOrMore[LayoutKeys],
        doc("How one model is spread over devices; default: each device has all of it."),
    ] = ()
    topologies: Annotated[
        SomeOf[TopologyText], doc("Nodes and devices per node of each case, as in 4n8g.")
    ]
    reference: Annotated[
        str,
        Meta(pattern=f"^({TOPOLOGY}|{NO_REFERENCE})$", title="a topology such as 1n8g, or none"),
        doc("The topology that speedups are taken over, or none."),
    ] = "1n1g"
    options: Annotated[SomeOf[Name], doc("What else changes the speed.")] = ()

    @property
    def batches(self) -> dict[str, tuple[int, ...]]:
        """The batch sizes that are set, by key; one of the three is right."""
        keys = ("batch_per_device", "batch_per_replica", "global_batch")
        return {key: batches for key in keys if (batches := many(getattr(self, key)))}

    def variants(self) -> Iterator[Variant]:
        """Yield what its cases are of, each at all topologies."""
        if not self.batches:
            for values in product(*map(many, self.axes.values())):
                yield Variant(axes=dict(zip(self.axes, values, strict=True)))
            return
        [batches] = self.batches.values()
        for precision, batch, length, layout in product(
            many(self.precision),
            batches,
            many(self.sequence_length) or (None,),
            many(self.parallel) or (ONE_DEVICE,),
        ):
            work = Work(
                batch=batch,
                is_global=bool(self.global_batch),
                sequence_length=length,
                layout=of_model(Layout, layout),
            )
            yield Variant(precision=precision, work=work)

    def probe_problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """List what it says that a probe does not have, by key path."""
        for name, values in self.axes.items():
            for value in many(values):
                try:
                    check_axis(name, value)
                except ValueError as error:
                    yield ("axes", name), str(error)
        keys = ("precision", "sequence_length", "parallel", "options")
        for key in (*filter(partial(getattr, self), keys), *self.batches, *self.flops):
            message = (
                f"{key!r} is of trainings; this system has no 'window' and no 'unit', so it is a "
                f"probe, which has 'axes: {{{key}: […]}}' for what differs between its cases"
            )
            yield (key,), message

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """List contradictions between its values, by key path."""
        if self.axes:
            yield ("axes",), "is of probes, which have neither 'window' nor 'unit'; use 'options'"
        for number, option in enumerate(self.options):
            try:
                check_name("option", option)
            except ValueError as error:
                yield ("options", number), str(error)
            if self.options.index(option) != number:
                yield ("options", number), f"the option {option!r} is named twice"
        if not self.precision:
            yield (), "the key 'precision' is missing"
        batches = list(self.batches)
        if len(batches) != 1:
            allowed = "batch_per_device (batch_per_replica with 'parallel') and global_batch"
            written = " and ".join(batches) or "none of them"
            yield (), f"a case has one of {allowed}; found {written}"
        if self.parallel and self.batch_per_device:
            message = "with 'parallel' a replica takes more than one device; write "
            yield ("batch_per_device",), f"{message}batch_per_replica, or all of it as global_batch"


class Variant(Struct, frozen=True, kw_only=True):
    """What cases of several topologies have in common: of a training, or of a probe."""

    precision: str = ""
    work: Work | None = None
    axes: Mapping[str, str] = {}


def named_cases(  # noqa: C901, PLR0913 - a system says so much about its cases; all by name
    file: YamlFile,
    entries: Sequence[Entry],
    *,
    framework: str,
    model: str,
    unit: str | None,
    flops: Flops,
) -> tuple[Case, ...]:
    """Make the cases that entries name, but for those of which a mistake is reported.

    ``unit`` is what throughput counts, ``None`` for a probe; ``flops`` hold where an entry says
    none.
    """
    wrong: set[int] = set()

    def report(index: int, path: tuple[str | int, ...], message: str) -> None:
        file.error(("cases", index, *path), message)
        wrong.add(index)

    for index, entry in enumerate(entries):
        for path, message in entry.probe_problems() if unit is None else entry.problems():
            report(index, path, message)
        if entry.axes.keys() != entries[0].axes.keys():
            report(
                index,
                (),
                f"it has the axes {', '.join(entry.axes) or 'none'}, the first one "
                f"{', '.join(entries[0].axes) or 'none'}; all cases of a system have the same",
            )
    cases: dict[Case, tuple[str | int, ...]] = {}
    for index, entry in enumerate(entries):
        needed = entry.flops or flops.flops
        problem = None if unit is None else _token_problem(entry, unit, needed)
        if problem:
            report(index, (), problem)
        if index in wrong:
            continue
        is_scaled = unit is not None and entry.reference != NO_REFERENCE
        reference = Topology.parse(entry.reference) if is_scaled else None
        for (number, topology), variant in product(enumerate(entry.topologies), entry.variants()):
            path = ("cases", index, "topologies", number)
            try:
                case = Case(
                    framework=framework,
                    model=model,
                    precision=variant.precision,
                    work=variant.work,
                    options=tuple(sorted(entry.options)),
                    free_axes=variant.axes,
                    topology=Topology.parse(topology),
                    reference_topology=reference,
                    flops_per_sample=_flops_per_sample(variant, needed),
                )
            except ValueError as error:
                file.error(path, str(error))
                continue
            first = cases.setdefault(case, path)
            if first is not path:
                line = file.place(first).line
                file.error(path, f"{case.id} is named twice; first on line {line}")
    return tuple(cases)


def _token_problem(entry: Entry, unit: str, flops: Mapping[str, float]) -> str | None:
    if len(flops) > 1:
        return f"{' and '.join(flops)} say the same; give one"
    if not entry.sequence_length:
        counts = [f"throughput in {unit}"] if counts_tokens(unit) else []
        counts += [name for name in flops if name == "flops_per_token"]
        if counts:
            return f"{counts[0]} needs 'sequence_length' here: how many tokens a sample is"
    return None


def _flops_per_sample(variant: Variant, flops: Mapping[str, float]) -> float | None:
    length = variant.work.sequence_length if variant.work is not None else None
    if "flops_per_token" in flops and length is not None:
        return flops["flops_per_token"] * length
    return flops.get("flops_per_sample")

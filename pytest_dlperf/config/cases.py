"""The ``cases`` of a system file: its entries, and the cases that they name."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.files.shapes import (
    Integer,
    Key,
    ListOf,
    MapOf,
    Number,
    OneOrMore,
    Record,
    Scalar,
    Shape,
    Text,
)
from pytest_dlperf.model.case import (
    NAME_PATTERN,
    PRECISION_PATTERN,
    SINGLE_DEVICE,
    TOPOLOGY_PATTERN,
    Case,
    Topology,
    check_axis,
    check_name,
    check_precision,
)
from pytest_dlperf.model.work import ONE_DEVICE, WAYS, Layout, Work, counts_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.files.yamlfile import YamlValue

NO_REFERENCE: Final = "none"


class Flops(Struct, frozen=True, kw_only=True):
    """Floating-point operations that a training needs, for a token or for a sample."""

    flops_per_token: float | None = None
    flops_per_sample: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The keys that are set."""
        return tuple(one for one in Flops.__struct_fields__ if getattr(self, one) is not None)


class Entry(Flops, frozen=True, kw_only=True):
    """One entry of ``cases``; ``CASES`` says what each value is.

    Of values that are lists there is a case for each combination. ``reference`` is empty where
    speedups are taken over none.
    """

    precision: tuple[str, ...] = ()
    axes: Mapping[str, tuple[str, ...]] = {}
    topologies: tuple[Topology, ...]
    options: tuple[str, ...] = ()
    batch_per_device: tuple[int, ...] = ()
    batch_per_replica: tuple[int, ...] = ()
    global_batch: tuple[int, ...] = ()
    sequence_length: tuple[int, ...] = ()
    parallel: tuple[Layout, ...] = ()
    reference: tuple[Topology, ...] = (SINGLE_DEVICE,)

    @property
    def batches(self) -> dict[str, tuple[int, ...]]:
        """The batch sizes that are set, by key; one of the three is right."""
        keys = ("batch_per_device", "batch_per_replica", "global_batch")
        return {key: batches for key in keys if (batches := getattr(self, key))}

    def variants(self) -> Iterator[Variant]:
        """Yield what its cases are of, each at all topologies."""
        if not self.batches:
            for values in product(*self.axes.values()):
                yield Variant(axes=dict(zip(self.axes, values, strict=True)))
            return
        [batches] = self.batches.values()
        for precision, batch, length, layout in product(
            self.precision, batches, self.sequence_length or (None,), self.parallel or (ONE_DEVICE,)
        ):
            work = Work(
                batch=batch,
                is_global=bool(self.global_batch),
                sequence_length=length,
                layout=layout,
            )
            yield Variant(precision=precision, work=work)

    def probe_problems(self) -> Iterator[tuple[str, str]]:
        """List what it says that a probe does not have, by key."""
        given = [
            name
            for name in ("precision", "sequence_length", "parallel", "options")
            if getattr(self, name)
        ]
        for key in (*given, *self.batches, *self.names):
            message = (
                f"{key!r} is of trainings; this system has no 'window' and no 'unit', so it is a "
                f"probe, which has 'axes: {{{key}: […]}}' for what differs between its cases"
            )
            yield key, message

    def problems(self) -> Iterator[tuple[str, str]]:
        """List contradictions between its values, by key."""
        if self.axes:
            yield "axes", "is of probes, which have neither 'window' nor 'unit'; use 'options'"
        if not self.precision:
            yield "", "the key 'precision' is missing"
        batches = list(self.batches)
        if len(batches) != 1:
            found = " and ".join(batches) or "none of them"
            allowed = "batch_per_device (batch_per_replica with 'parallel') and global_batch"
            yield "", f"a case has one of {allowed}; found {found}"
        if self.parallel and self.batch_per_device:
            one, *others = self.batch_per_device
            said = f"[{one}, {', '.join(map(str, others))}]" if others else one
            instead = f"batch_per_replica: {said}, or all of it as global_batch"
            message = f"with 'parallel' a replica takes more than one device; write {instead}"
            yield "batch_per_device", message


class Variant(Struct, frozen=True, kw_only=True):
    """What cases of several topologies have in common: of a training, or of a probe."""

    precision: str = ""
    work: Work | None = None
    axes: Mapping[str, str] = {}


def _reference(text: str) -> tuple[Topology, ...]:
    return () if text == NO_REFERENCE else (Topology.parse(text),)


def _once(options: tuple[str, ...]) -> tuple[str, ...]:
    for option in set(options):
        if options.count(option) > 1:
            raise ValueError(f"the option {option!r} is named twice")
    return tuple(sorted(options))


def _axes(axes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    for name, values in axes.items():
        for value in values:
            check_axis(name, value)
    return axes


def name_shape(axis: str, allowed: str = "a name such as 'resnet50'") -> Shape[str]:
    """Return the shape of a name that stands in ids."""
    return Text(allowed).parsed(partial(check_name, axis), pattern=f"^{NAME_PATTERN}$")


PRECISION: Final = Text("a precision such as fp32").parsed(
    check_precision, pattern=f"^{PRECISION_PATTERN}$"
)
_FLOPS: Final = Number(unit="floating-point operations")
FLOPS_KEYS: Final = (
    Key(
        "flops_per_token",
        _FLOPS,
        "Operations that training on one token takes, forward and backward; for mfu.",
    ),
    Key("flops_per_sample", _FLOPS, "The same for one sample."),
)
"""What MFU is reckoned from: for all cases of a system, or for those of one entry."""

CASES: Final = ListOf(
    Record(
        Entry,
        Key(
            "precision",
            OneOrMore(PRECISION),
            "Precision of the training, as in fp32. Of lists here, and as batch, length or layout, "
            "each combination is a case.",
        ),
        Key(
            "axes",
            MapOf(
                OneOrMore(Scalar()),
                "a mapping of names to lists of values",
            ).parsed(_axes),
            "What the cases of a probe differ by: one for each combination of values.",
        ),
        Key("batch_per_device", OneOrMore(Integer(1)), "Samples that one device takes in a step."),
        Key(
            "batch_per_replica",
            OneOrMore(Integer(1)),
            "Its name with 'parallel': samples of one data-parallel replica in a step.",
        ),
        Key(
            "global_batch",
            OneOrMore(Integer(1)),
            "Samples of the whole run in a step, instead of those.",
        ),
        Key("sequence_length", OneOrMore(Integer(1)), "Tokens of one sample."),
        Key(
            "parallel",
            OneOrMore(
                Record(
                    Layout,
                    *(Key(way, Integer(1), f"Number of {what}.") for way, what in WAYS.items()),
                )
            ),
            "How one model is spread over devices; default: each device has all of it.",
        ),
        Key(
            "topologies",
            ListOf(
                Text("a topology such as 4n8g").parsed(
                    Topology.parse, pattern=f"^{TOPOLOGY_PATTERN}$"
                ),
                "a list of topologies such as 4n8g",
            ),
            "Nodes and devices per node of each case, as in 4n8g.",
            required=True,
        ),
        Key(
            "reference",
            Text("a topology such as 1n8g, or none").parsed(
                _reference, pattern=f"^({TOPOLOGY_PATTERN}|{NO_REFERENCE})$"
            ),
            "The topology that speedups are taken over, or none; default: 1n1g.",
        ),
        Key(
            "options",
            ListOf(
                name_shape("option", "an option such as xla"),
                "a list of options such as xla",
            ).parsed(_once),
            "What else changes the speed.",
        ),
        *FLOPS_KEYS,
    ),
    "a list of cases",
)


def named_cases(  # noqa: PLR0913 - a system says so much about its cases; all by name
    place: YamlValue,
    entries: Sequence[Entry],
    *,
    framework: str,
    model: str,
    unit: str | None,
    flops: Flops,
) -> dict[Case, str] | None:
    """Make the cases that entries name, each with its path; ``None`` after a mistake.

    ``unit`` is what throughput counts, ``None`` for a probe; ``flops`` hold where an entry says
    none.
    """
    faults = place.faults
    for index, entry in enumerate(entries):
        for key, message in entry.probe_problems() if unit is None else entry.problems():
            place.at(f"[{index}].{key}" if key else f"[{index}]").fault(message)
        if entry.axes.keys() != entries[0].axes.keys():
            place.at(f"[{index}]").fault(
                f"it has the axes {', '.join(entry.axes) or 'none'}, the first one "
                f"{', '.join(entries[0].axes) or 'none'}; all cases of a system have the same"
            )
    if place.faults != faults:
        return None
    cases: dict[Case, str] = {}
    for index, entry in enumerate(entries):
        needed = entry if entry.names else flops
        problem = None if unit is None else _token_problem(entry, unit, needed)
        if problem:
            place.at(f"[{index}]").fault(problem)
            continue
        reference = None if unit is None or not entry.reference else entry.reference[0]
        for (number, topology), variant in product(enumerate(entry.topologies), entry.variants()):
            path = f"[{index}].topologies[{number}]"
            try:
                case = Case(
                    framework=framework,
                    model=model,
                    precision=variant.precision,
                    work=variant.work,
                    options=entry.options,
                    free_axes=variant.axes,
                    topology=topology,
                    reference_topology=reference,
                    flops_per_sample=_flops_per_sample(variant, needed),
                )
            except ValueError as error:
                place.at(path).fault(str(error))
                continue
            first = cases.setdefault(case, path)
            if first is not path:
                line = place.at(first).line
                place.at(path).fault(f"{case.id} is named twice; first on line {line}")
    return cases if place.faults == faults else None


def _token_problem(entry: Entry, unit: str, flops: Flops) -> str | None:
    if len(flops.names) > 1:
        return f"{' and '.join(flops.names)} say the same; give one"
    if not entry.sequence_length:
        counts = [f"throughput in {unit}"] if counts_tokens(unit) else []
        counts += [name for name in flops.names if name == "flops_per_token"]
        if counts:
            return f"{counts[0]} needs 'sequence_length' here: how many tokens a sample is"
    return None


def _flops_per_sample(variant: Variant, flops: Flops) -> float | None:
    length = variant.work.sequence_length if variant.work is not None else None
    if flops.flops_per_token is not None and length is not None:
        return flops.flops_per_token * length
    return flops.flops_per_sample

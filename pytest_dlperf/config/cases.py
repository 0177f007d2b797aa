"""The ``cases`` of a system file: its entries, and the cases that they name."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.files.shapes import (
    ByKind,
    Integer,
    Key,
    ListOf,
    MapOf,
    Number,
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

    ``reference`` is empty where speedups are taken over none.
    """

    precision: str = ""
    axes: Mapping[str, tuple[str, ...]] = {}
    topologies: tuple[Topology, ...]
    options: tuple[str, ...] = ()
    batch_per_device: int | None = None
    batch_per_replica: int | None = None
    global_batch: int | None = None
    sequence_length: int | None = None
    parallel: Layout | None = None
    reference: tuple[Topology, ...] = (SINGLE_DEVICE,)

    @property
    def batches(self) -> dict[str, int]:
        """The batch sizes that are set, by key; one of the three is right."""
        said = {
            "batch_per_device": self.batch_per_device,
            "batch_per_replica": self.batch_per_replica,
            "global_batch": self.global_batch,
        }
        return {key: batch for key, batch in said.items() if batch is not None}

    @property
    def work(self) -> Work:
        """The work of a step of its cases."""
        [batch] = self.batches.values()
        return Work(
            batch=batch,
            is_global=self.global_batch is not None,
            sequence_length=self.sequence_length,
            layout=self.parallel or ONE_DEVICE,
        )

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
        if self.parallel is not None and self.batch_per_device is not None:
            instead = f"batch_per_replica: {self.batch_per_device}, or all of it as global_batch"
            message = f"with 'parallel' a replica takes more than one device; write {instead}"
            yield "batch_per_device", message


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
            PRECISION,
            "Precision of the training, as in fp32.",
        ),
        Key(
            "axes",
            MapOf(
                ByKind(
                    scalar=Scalar().parsed(lambda value: (value,)),
                    sequence=ListOf(Scalar(), "a list of values"),
                ),
                "a mapping of names to lists of values",
            ).parsed(_axes),
            "What the cases of a probe differ by: one for each combination of values.",
        ),
        Key("batch_per_device", Integer(1), "Samples that one device takes in a step."),
        Key(
            "batch_per_replica",
            Integer(1),
            "Its name with 'parallel': samples of one data-parallel replica in a step.",
        ),
        Key("global_batch", Integer(1), "Samples of the whole run in a step, instead of those."),
        Key("sequence_length", Integer(1), "Tokens of one sample."),
        Key(
            "parallel",
            Record(
                Layout,
                *(Key(way, Integer(1), f"Number of {what}.") for way, what in WAYS.items()),
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
) -> tuple[Case, ...] | None:
    """Make the cases that entries name, one for each topology; ``None`` after a mistake.

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
    first: dict[str, str] = {}
    cases: list[Case] = []
    for index, entry in enumerate(entries):
        needed = entry if entry.names else flops
        problem = None if unit is None else _token_problem(entry, unit, needed)
        if problem:
            place.at(f"[{index}]").fault(problem)
            continue
        work = None if unit is None else entry.work
        combinations = [
            dict(zip(entry.axes, one, strict=True)) for one in product(*entry.axes.values())
        ]
        reference = None if unit is None or not entry.reference else entry.reference[0]
        for (number, topology), axes in product(enumerate(entry.topologies), combinations):
            path = f"[{index}].topologies[{number}]"
            try:
                case = Case(
                    framework=framework,
                    model=model,
                    precision=entry.precision,
                    work=work,
                    options=entry.options,
                    free_axes=axes,
                    topology=topology,
                    reference_topology=reference,
                    flops_per_sample=_flops_per_sample(entry, needed),
                )
            except ValueError as error:
                place.at(path).fault(str(error))
                continue
            if case.id in first:
                line = place.at(first[case.id]).line
                place.at(path).fault(f"{case.id} is named twice; first on line {line}")
            else:
                first[case.id] = path
                cases.append(case)
    return tuple(cases) if place.faults == faults else None


def _token_problem(entry: Entry, unit: str, flops: Flops) -> str | None:
    if len(flops.names) > 1:
        return f"{' and '.join(flops.names)} say the same; give one"
    if entry.sequence_length is None:
        counts = [f"throughput in {unit}"] if counts_tokens(unit) else []
        counts += [name for name in flops.names if name == "flops_per_token"]
        if counts:
            return f"{counts[0]} needs 'sequence_length' here: how many tokens a sample is"
    return None


def _flops_per_sample(entry: Entry, flops: Flops) -> float | None:
    if flops.flops_per_token is not None and entry.sequence_length is not None:
        return flops.flops_per_token * entry.sequence_length
    return flops.flops_per_sample

"""Work of a training step: batch, sequence length, layout; and what a printed time says of it."""

from __future__ import annotations

import re
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Annotated, Final, Self

from msgspec import Meta, Struct
from msgspec.structs import asdict

LAYOUT_PATTERN: Final = r"(?:tp|pp|cp|ep)[0-9]+(?:_(?:tp|pp|cp|ep)[0-9]+)*"
WORK_PATTERN: Final = rf"g?b[1-9][0-9]*(?:-s[1-9][0-9]*)?(?:-{LAYOUT_PATTERN})?"

TOKENS: Final = "tokens/s"
"""The unit of throughput in which a sample counts its sequence length."""

_LAYOUT = re.compile(LAYOUT_PATTERN)
_WORK = re.compile(
    rf"(?P<kind>g?b)(?P<batch>[1-9][0-9]*)(?:-s(?P<length>[1-9][0-9]*))?"
    rf"(?:-(?P<layout>{LAYOUT_PATTERN}))?"
)
_RESERVED = re.compile(rf"(?:g?b|s)[0-9]+|{LAYOUT_PATTERN}")


class Scaling(StrEnum):
    """What stays the same when devices are added."""

    WEAK = "weak"
    """The batch of a data-parallel replica: the work of a step grows."""
    STRONG = "strong"
    """The global batch: the work of a step is shared by more devices."""


_Ways = Annotated[int, Meta(ge=1, le=10**9)]


class Layout(Struct, frozen=True, order=True, kw_only=True):
    """How one model is spread over devices; written ``tp2_pp4``, and nothing for one device.

    Tensor, pipeline and context parallelism take devices of their own; expert parallelism shares
    those of the replicas.
    """

    tp: _Ways = 1
    """Number of devices that share a layer (tensor parallelism)."""
    pp: _Ways = 1
    """Number of stages of layers (pipeline parallelism)."""
    cp: _Ways = 1
    """Number of devices that share a sequence (context parallelism)."""
    ep: _Ways = 1
    """Number of devices that share the experts (expert parallelism)."""

    @classmethod
    @lru_cache
    def parse(cls, text: str) -> Layout:
        """Read ``tp2_pp4``; an empty text is a model on one device, any other a ``ValueError``."""
        parts = text.split("_") if _LAYOUT.fullmatch(text) else []
        layout = cls(**{part[:2]: int(part[2:]) for part in parts})
        if str(layout) != text:
            raise ValueError(
                f"{text!r} is not a layout; write those of tp, pp, cp and ep that are above 1, "
                "in this order, as in 'tp2_pp4'"
            )
        return layout

    @property
    def devices(self) -> int:
        """Devices that hold one data-parallel replica."""
        return self.tp * self.pp * self.cp

    @property
    def ways(self) -> dict[str, int]:
        """The ways of splitting that are above one, by name."""
        return {name: ways for name, ways in asdict(self).items() if ways > 1}

    def __str__(self) -> str:
        # Collecting thousands of cases asks for it, and nearly all have one device.
        if self is ONE_DEVICE:
            return ""
        return "_".join(f"{name}{ways}" for name, ways in self.ways.items())


ONE_DEVICE: Final = Layout()


class Work(Struct, frozen=True, kw_only=True):
    """What a case says of a step's work; written ``b128`` or ``gb256-s4096-tp2_pp4``.

    ``batch`` counts the samples of one data-parallel replica, or those of all with ``is_global``.
    """

    batch: int
    is_global: bool = False
    sequence_length: int | None = None
    layout: Layout = ONE_DEVICE

    def __post_init__(self) -> None:
        for number in (self.batch, self.sequence_length):
            if number is not None and number < 1:
                raise ValueError(f"batch and sequence length are at least 1, not {number}")

    @classmethod
    @lru_cache
    def parse(cls, text: str) -> Work:
        """Read the form that ids have; anything else is a ``ValueError``."""
        match = _WORK.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not the work of a step; write b<batch per replica> or "
                "gb<global batch>, then -s<sequence length> and -<layout> where there are, as in "
                "'gb256-s4096-tp2_pp4'"
            )
        return cls(
            batch=int(match["batch"]),
            is_global=match["kind"] == "gb",
            sequence_length=int(match["length"]) if match["length"] else None,
            layout=Layout.parse(match["layout"] or ""),
        )

    @property
    def batch_text(self) -> str:
        """The batch as it stands in ids and names of logs: ``b128``, ``gb256``."""
        return f"{'g' if self.is_global else ''}b{self.batch}"

    def replicas(self, devices: int) -> int:
        """Count the data-parallel replicas on so many devices, which share layout and batch evenly.

        Else ``ValueError``.
        """
        layout = self.layout
        replicas, rest = divmod(devices, layout.devices)
        if rest:
            raise ValueError(
                f"the layout {layout} takes {layout.devices} devices for a replica, which does not "
                f"divide the {devices} there are"
            )
        if devices // layout.pp % layout.ep:
            raise ValueError(
                f"the layout {layout} spreads experts over {layout.ep} devices, which does not "
                f"divide the {devices // layout.pp} of a pipeline stage"
            )
        if self.is_global and self.batch % replicas:
            raise ValueError(
                f"the global batch {self.batch} does not divide by the {replicas} data-parallel "
                f"replicas on {devices} devices"
            )
        return replicas

    def __lt__(self, other: Work) -> bool:
        mine, theirs = (
            (work.batch, work.is_global, work.sequence_length or 0, work.layout)
            for work in (self, other)
        )
        return mine < theirs

    def __str__(self) -> str:
        length = "" if self.sequence_length is None else f"-s{self.sequence_length}"
        layout = str(self.layout)
        return f"{self.batch_text}{length}{layout and '-'}{layout}"


def is_reserved(text: str) -> bool:
    """Whether an id would read an option of this name as a batch, a length or a layout."""
    return _RESERVED.fullmatch(text) is not None


# -------------------------------------------------------------------------- printed times


class TimeKind(Enum):
    """What a printed time is."""

    DURATION = "how long a step took"
    RATE = "how much was done per second"
    MOMENT = "when a step had ended"


class Timing(StrEnum):
    """The time on a record; the values name the pattern's groups."""

    _value_: str

    SECONDS = "seconds", TimeKind.DURATION
    MILLISECONDS = "milliseconds", TimeKind.DURATION
    SECONDS_PER_STEP = "seconds_per_step", TimeKind.DURATION
    SAMPLES_PER_SECOND = "samples_per_second", TimeKind.RATE
    TOKENS_PER_SECOND = "tokens_per_second", TimeKind.RATE
    STEPS_PER_SECOND = "steps_per_second", TimeKind.RATE
    TIMESTAMP = "timestamp", TimeKind.MOMENT
    """A date and a time, also with AM and PM, a time alone, or seconds since any moment."""
    EPOCH_MILLISECONDS = "epoch_milliseconds", TimeKind.MOMENT
    """Milliseconds since 1970."""
    ELAPSED_SECONDS = "elapsed_seconds", TimeKind.MOMENT
    """Since the run began, also as ``1:02:03``."""
    ELAPSED_MILLISECONDS = "elapsed_milliseconds", TimeKind.MOMENT
    ARRIVAL = "arrival", TimeKind.MOMENT
    """No group: the time at which the supervisor had the record."""

    kind: TimeKind
    """What the printed number is."""

    def __new__(cls, name: str, kind: TimeKind) -> Self:
        """Make a row of the table above."""
        timing = str.__new__(cls, name)
        timing._value_ = name
        timing.kind = kind
        return timing


TIMING_GROUPS: Final = tuple(timing.value for timing in Timing if timing is not Timing.ARRIVAL)


class Covers(StrEnum):
    """The steps that a printed duration or speed is of."""

    LAST_STEP = "last_step"
    """The step that it is printed with, whatever came between two records."""
    SINCE_LAST = "since_last"
    """The mean of the steps since the record before."""
    TOTAL_SINCE_LAST = "total_since_last"
    """All steps since the record before together: a duration that grows with their number."""
    SINCE_START = "since_start"
    """The mean of all steps so far; two of them are differenced."""


class StepsIn(StrEnum):
    """What a printed step's number counts."""

    STEPS = "steps"
    SAMPLES = "samples"


class RateScope(StrEnum):
    """What a printed speed covers."""

    GLOBAL = "global"
    NODE = "node"
    RANK = "rank"
    """The replica that the rank is of; all its ranks print the same."""
    DEVICE = "device"
    """A device's share of its replica."""

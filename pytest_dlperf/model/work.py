"""Work of a training step: its batch, the length of its sequences and its parallel layout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

LAYOUT_PATTERN: Final = r"(?:tp|pp|cp|ep)[0-9]+(?:_(?:tp|pp|cp|ep)[0-9]+)*"
WORK_PATTERN: Final = rf"g?b[1-9][0-9]*(?:-s[1-9][0-9]*)?(?:-{LAYOUT_PATTERN})?"

TOKENS: Final = "tokens/s"
"""The unit of throughput in which a sample is worth its sequence length."""

_LIKE_TOKENS = re.compile(r"[kKM]?(?:tok(?:ens?)?\b|tps\b)", re.IGNORECASE)
_LAYOUT = re.compile(LAYOUT_PATTERN)
_WORK = re.compile(
    rf"(?P<kind>g?b)(?P<batch>[1-9][0-9]*)(?:-s(?P<length>[1-9][0-9]*))?"
    rf"(?:-(?P<layout>{LAYOUT_PATTERN}))?"
)
_RESERVED = re.compile(rf"(?:g?b|s)[0-9]+|{LAYOUT_PATTERN}")


class Scaling(str, Enum):
    """What stays the same when devices are added."""

    WEAK = "weak"
    """The batch of a data-parallel replica: the work of a step grows."""
    STRONG = "strong"
    """The global batch: the work of a step is shared by more devices."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Layout:
    """How one model is spread over devices; written ``tp2_pp4``, and nothing for one device.

    Tensor, pipeline and context parallelism take devices of their own; expert parallelism shares
    those of the replicas.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        """Refuse a layout that names no device.

        Raises:
            ValueError: A way of splitting is below one.
        """
        for name, ways in self._all():
            if ways < 1:
                raise ValueError(f"{name} is at least 1, not {ways}")

    @classmethod
    @lru_cache
    def parse(cls, text: str) -> Layout:
        """Read ``tp2_pp4``; an empty text is a model on one device.

        Raises:
            ValueError: The text is no layout, or not written the one way that ids know.
        """
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
        return {name: ways for name, ways in self._all() if ways > 1}

    def _all(self) -> tuple[tuple[str, int], ...]:
        return ("tp", self.tp), ("pp", self.pp), ("cp", self.cp), ("ep", self.ep)

    def __str__(self) -> str:
        """Write the form that ``parse`` reads."""
        # Collecting thousands of cases asks for it, and nearly all have one device.
        if self is ONE_DEVICE:
            return ""
        return "_".join(f"{name}{ways}" for name, ways in self.ways.items())


ONE_DEVICE: Final = Layout()
WAYS: Final = {
    "tp": "devices that share a layer (tensor parallelism)",
    "pp": "stages of layers (pipeline parallelism)",
    "cp": "devices that share a sequence (context parallelism)",
    "ep": "devices that share the experts (expert parallelism)",
}
"""The ways in which a layout splits a model, and what each counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a case says of a step's work; written ``b128`` or ``gb256-s4096-tp2_pp4``.

    ``batch`` counts the samples of one data-parallel replica, or those of all with ``is_global``.
    """

    batch: int
    is_global: bool = False
    sequence_length: int | None = None
    layout: Layout = ONE_DEVICE

    def __post_init__(self) -> None:
        """Refuse a step that does nothing.

        Raises:
            ValueError: The batch or the sequence length is below one.
        """
        if self.batch < 1:
            raise ValueError(f"the {self.batch_name} is at least 1, not {self.batch}")
        if self.sequence_length is not None and self.sequence_length < 1:
            raise ValueError(f"the sequence length is at least 1, not {self.sequence_length}")

    @classmethod
    @lru_cache
    def parse(cls, text: str) -> Work:
        """Read the form that ids have.

        Raises:
            ValueError: The text is anything else.
        """
        match = _WORK.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} says no step's work; write b<batch per replica> or gb<global batch>, "
                "then -s<sequence length> and -<layout> where there are, as in "
                "'gb256-s4096-tp2_pp4'"
            )
        return cls(
            batch=int(match["batch"]),
            is_global=match["kind"] == "gb",
            sequence_length=int(match["length"]) if match["length"] else None,
            layout=Layout.parse(match["layout"] or ""),
        )

    @property
    def batch_name(self) -> str:
        """What the batch is called in messages."""
        return "global batch" if self.is_global else "batch per replica"

    @property
    def batch_text(self) -> str:
        """The batch as it stands in ids and names of logs: ``b128``, ``gb256``."""
        return f"{'g' if self.is_global else ''}b{self.batch}"

    @property
    def scaling(self) -> Scaling:
        """What stays the same when devices are added."""
        return Scaling.STRONG if self.is_global else Scaling.WEAK

    def replicas(self, devices: int) -> int:
        """Count the data-parallel replicas on so many devices.

        Raises:
            ValueError: Layout or batch cannot be shared evenly by them.
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
        """Sort the smaller batch first."""
        return self._order() < other._order()

    def _order(self) -> tuple[int, bool, int, Layout]:
        return self.batch, self.is_global, self.sequence_length or 0, self.layout

    def __str__(self) -> str:
        """Write the form that ``parse`` reads."""
        length = "" if self.sequence_length is None else f"-s{self.sequence_length}"
        layout = str(self.layout)
        return f"{self.batch_text}{length}{layout and '-'}{layout}"


def is_reserved(text: str) -> bool:
    """Say whether an id would take an option of this name for a batch, length or layout."""
    return _RESERVED.fullmatch(text) is not None


def counts_tokens(unit: str) -> bool:
    """Say whether throughput in this unit counts tokens: a sample is as many as it is long."""
    return unit == TOKENS


def check_unit(unit: str) -> str:
    """Accept a unit of throughput that leaves no doubt whether it counts tokens, and return it.

    Raises:
        ValueError: It says tokens in another way.
    """
    if unit != TOKENS and _LIKE_TOKENS.match(unit):
        raise ValueError(f"throughput in {unit!r} is not known; tokens are counted in {TOKENS!r}")
    return unit

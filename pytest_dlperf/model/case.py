"""Values that name what is measured, a training or a probe: topology, case and the case's id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from pytest_dlperf.model.work import (
    ONE_DEVICE,
    TOKENS,
    WORK_PATTERN,
    Layout,
    RateScope,
    Scaling,
    Work,
    is_reserved,
)

TOPOLOGY_PATTERN: Final = r"[1-9][0-9]*n[1-9][0-9]*g"
NAME_PATTERN: Final = r"[a-z][a-z0-9_]*"
PRECISION_PATTERN: Final = r"[a-z][a-z0-9]*"
AXIS_VALUE_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.]*"

_TOPOLOGY = re.compile(r"([1-9][0-9]*)n([1-9][0-9]*)g")
_ID = re.compile(
    rf"(?P<framework>{NAME_PATTERN})-(?P<model>{NAME_PATTERN})-(?P<precision>{PRECISION_PATTERN})"
    rf"-(?P<work>{WORK_PATTERN})(?:-(?P<options>{NAME_PATTERN}(?:\+{NAME_PATTERN})*))?"
    rf"-(?P<topology>{TOPOLOGY_PATTERN})"
)
_PROBE_ID = re.compile(
    rf"(?P<framework>{NAME_PATTERN})-(?P<model>{NAME_PATTERN})"
    rf"(?P<axes>(?:-{AXIS_VALUE_PATTERN})*)-(?P<topology>{TOPOLOGY_PATTERN})"
)
NO_VARIANT: Final = "all"
"""What baselines call the variant of a probe without axes."""
FIXED_AXES: Final = frozenset(
    {"system", "framework", "model", "topology", "nodes", "devices_per_node", "options", "case"}
    | {"self"}
)
"""What every case has, and what pytest's marks have: no free axis has such a name."""


class Topology(Struct, frozen=True, order=True):
    """Nodes that train together, and devices of each; written ``4n8g``."""

    nodes: int
    devices_per_node: int

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.devices_per_node < 1:
            raise ValueError(
                f"a topology has at least one node and one device per node, "
                f"not {self.nodes} and {self.devices_per_node}"
            )

    @classmethod
    @lru_cache
    def parse(cls, text: str) -> Topology:
        """Read ``<N>n<D>g``; anything else, also leading zeros, is a ``ValueError``."""
        match = _TOPOLOGY.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a topology; write nodes and devices per node as in '4n8g'"
            )
        return cls(int(match[1]), int(match[2]))

    @property
    def world_size(self) -> int:
        """Devices in the whole run."""
        return self.nodes * self.devices_per_node

    def __str__(self) -> str:
        return f"{self.nodes}n{self.devices_per_node}g"


SINGLE_DEVICE: Final = Topology(1, 1)


class Case(Struct, frozen=True, kw_only=True, eq=False):
    """What is measured: framework x model x what its kind varies x topology.

    A training has ``precision`` and ``work``, and ``options`` for what else changes the speed
    (``xla``, ``dali``, …), sorted and without repetition. A probe has ``free_axes`` instead: values
    by name, in the order of the id.
    """

    framework: str
    model: str
    precision: str = ""
    work: Work | None = None
    options: tuple[str, ...] = ()
    free_axes: Mapping[str, str] = {}
    topology: Topology
    reference_topology: Topology | None = SINGLE_DEVICE
    """What speedups are taken over; ``None`` for nothing. No part of the id."""
    flops_per_sample: float | None = None
    """Floating-point operations that training on a sample takes, where its system says so."""

    id: str = ""
    """The id under which tests, baselines and reports know the case; always made of the above."""

    def __post_init__(self) -> None:
        check_name("framework", self.framework)
        check_name("model", self.model)
        for option in self.options:
            check_name("option", option)
        if self.precision:
            check_name("precision", self.precision)
        if list(self.options) != sorted(set(self.options)):
            raise ValueError(
                f"options are sorted and named once, unlike {'+'.join(self.options)!r}"
            )
        self._check_work()
        variant = f"-{self.variant}" if self.variant != NO_VARIANT else ""
        case_id = f"{self.framework}-{self.model}{variant}-{self.topology}"
        if self.work is None:
            for name, value in self.free_axes.items():
                check_axis(name, value)
            if _ID.fullmatch(case_id):
                raise ValueError(f"{case_id} would be read as a training; name a value otherwise")
        # Made once: collecting thousands of cases asks for it again and again.
        force_setattr(self, "id", case_id)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Case) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def from_id(cls, case_id: str) -> Case:
        """Read a case back from its id.

        The reference topology of a training is 1n1g, and none under a layout. The free axes of a
        probe are numbered: its id does not name them. Any other text is a ``ValueError``.
        """
        match = _ID.fullmatch(case_id) or _PROBE_ID.fullmatch(case_id)
        if match is None:
            raise ValueError(
                f"{case_id!r} is not a case id; the form is "
                "<framework>-<model>-<precision>-(b|gb)<batch>[-s<sequence length>][-<layout>]"
                "[-<option>[+<option>…]]-<N>n<D>g, of a probe "
                "<framework>-<model>[-<value of an axis>…]-<N>n<D>g"
            )
        parts = match.groupdict()
        work = Work.parse(parts["work"]) if "work" in parts else None
        axes = parts.get("axes", "").split("-")[1:]
        is_scaled = work is not None and work.layout == ONE_DEVICE
        return cls(
            framework=parts["framework"],
            model=parts["model"],
            precision=parts.get("precision", ""),
            work=work,
            options=tuple(parts["options"].split("+")) if parts.get("options") else (),
            free_axes={f"axis{number}": value for number, value in enumerate(axes, 1)},
            topology=Topology.parse(parts["topology"]),
            reference_topology=SINGLE_DEVICE if is_scaled else None,
        )

    def __str__(self) -> str:
        return self.id

    @property
    def system(self) -> str:
        """The system that the case belongs to: ``<framework>-<model>``."""
        return f"{self.framework}-{self.model}"

    @property
    def variant(self) -> str:
        """The part of the id between system and topology, ``all`` where that is empty."""
        if self.work is None:
            return "-".join(self.free_axes.values()) or NO_VARIANT
        options = f"-{'+'.join(self.options)}" if self.options else ""
        return f"{self.precision}-{self.work}{options}"

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """What reports sort cases by: the smaller batch and topology first."""
        varied = (self.precision, self.work, self.options) if self.work else (self.variant,)
        return self.system, *varied, self.topology

    @property
    def training_work(self) -> Work:
        """The work of a training's step; a probe has none (``ValueError``)."""
        if self.work is None:
            raise ValueError(f"{self.id} is a probe, which has no steps")
        return self.work

    @property
    def replicas(self) -> int:
        """Data-parallel replicas: copies of the model that each take samples of their own."""
        return self.topology.world_size // self.layout.devices

    @property
    def batch_per_replica(self) -> int:
        """Samples that one data-parallel replica takes in one step."""
        work = self.training_work
        return work.batch // self.replicas if work.is_global else work.batch

    @property
    def global_batch(self) -> int:
        """Samples that all replicas together take in one step."""
        work = self.training_work
        return work.batch if work.is_global else work.batch * self.replicas

    @property
    def sequence_length(self) -> int | None:
        """Tokens of a sample; ``None`` where the case does not say."""
        return None if self.work is None else self.work.sequence_length

    @property
    def layout(self) -> Layout:
        """How one model is spread over devices."""
        return ONE_DEVICE if self.work is None else self.work.layout

    @property
    def scaling(self) -> Scaling:
        """Weak or strong: what stays the same over the topologies of this training."""
        return Scaling.STRONG if self.training_work.is_global else Scaling.WEAK

    def batch_per(self, parts: int) -> int | None:
        """Samples of a step of each of so many parts; ``None`` where a replica spans several."""
        replicas, rest = divmod(self.replicas, parts)
        return None if rest else replicas * self.batch_per_replica

    def rates_per_run(self, scope: RateScope) -> int:
        """How many printed rates of a scope add up to that of all devices."""
        # The ranks of one replica share its samples.
        return {
            RateScope.GLOBAL: 1,
            RateScope.NODE: min(self.topology.nodes, self.replicas),
            RateScope.RANK: self.replicas,
            RateScope.DEVICE: self.topology.world_size,
        }[scope]

    def tokens_per_sample(self, unit: str) -> int:
        """Return what a sample counts in a unit of throughput: its tokens for ``tokens/s``, else 1.

        ``ValueError``: the case has no sequence length.
        """
        if unit != TOKENS:
            return 1
        if self.sequence_length is None:
            raise ValueError(f"{self.id} has no sequence_length, so that {unit} cannot be counted")
        return self.sequence_length

    def work_of_step(self, unit: str) -> int:
        """Return the tokens or samples of a step, by the unit of throughput; of a probe 1."""
        return 1 if self.work is None else self.global_batch * self.tokens_per_sample(unit)

    @property
    def reference(self) -> Case | None:
        """The same training over which a speedup is taken; ``None`` where there is none."""
        if self.reference_topology is None:
            return None
        return replace(self, topology=self.reference_topology)

    @property
    def is_scaled(self) -> bool:
        """Whether it has a speedup: over a reference topology other than its own."""
        return self.reference_topology not in (None, self.topology)

    @property
    def ideal_speedup(self) -> float | None:
        """What its speedup would be without a loss: the ratio of devices, under any scaling."""
        over = self.reference_topology
        return None if over is None else self.topology.world_size / over.world_size

    def axes(self) -> dict[str, Any]:
        """Return the parts of the id by name, as the marker and the history carry them."""
        varied: dict[str, Any] = dict(self.free_axes)
        if self.work is not None:
            varied = {
                "precision": self.precision,
                "batch_per_replica": self.batch_per_replica,
                "global_batch": self.global_batch,
                "sequence_length": self.sequence_length,
                "parallel": str(self.layout),
                "options": "+".join(self.options),
            }
        return {
            "system": self.system,
            "framework": self.framework,
            "model": self.model,
            **varied,
            "topology": str(self.topology),
            "nodes": self.topology.nodes,
            "devices_per_node": self.topology.devices_per_node,
        }

    def marker(self) -> dict[str, Any]:
        """Return the values of the marker: the axes, and of a training each way of its layout."""
        return self.axes() if self.work is None else {**self.axes(), **asdict(self.layout)}

    def _check_work(self) -> None:
        if self.work is None or (self.work.layout is ONE_DEVICE and not self.work.is_global):
            # Any number of devices shares it; collecting thousands of cases is quicker so.
            return
        self.work.replicas(self.topology.world_size)
        reference = self.reference_topology
        if reference is None or not self.is_scaled:
            return
        try:
            self.work.replicas(reference.world_size)
        except ValueError as error:
            raise ValueError(
                f"speedups cannot be taken over {reference}: {error}; name another reference "
                "topology, as in 'reference: 1n8g', or 'reference: none'"
            ) from error


@lru_cache
def check_axis(name: str, value: str) -> str:
    """Return the value of a free axis that is valid in ids; else ``ValueError``."""
    check_name("axis", name)
    if name in FIXED_AXES:
        raise ValueError(f"{name!r} has a meaning already; give the axis another name")
    if not re.fullmatch(AXIS_VALUE_PATTERN, value):
        raise ValueError(
            f"{value!r} is not a valid value of the axis {name}; allowed are letters, digits, '_' "
            "and '.' (a hyphen stands only between the parts of an id)"
        )
    return value


@lru_cache
def check_name(axis: str, value: str) -> str:
    """Return a name, or a precision, that is valid in ids; else ``ValueError``."""
    if axis == "precision" and not re.fullmatch(PRECISION_PATTERN, value):
        raise ValueError(
            f"precision {value!r} is not valid; "
            "allowed are lower-case letters and digits, a letter first, as in 'fp32'"
        )
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError(
            f"{axis} {value!r} is not valid; allowed are lower-case letters, digits and "
            "underscores, a letter first (a hyphen stands only between the parts of an id)"
        )
    if axis == "option" and is_reserved(value):
        raise ValueError(
            f"option {value!r} would be read as a batch, a sequence length or a layout; "
            "use another name"
        )
    return value

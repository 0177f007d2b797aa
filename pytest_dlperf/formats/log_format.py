"""Log formats as data: how the log of each trainer shows a step.

A format says how to find the records of steps in a log's bytes, what the time on a record means,
which ranks print into the log, what the log tells about the run besides its steps, and how the
original benchmark defined the throughput, where it did.

Expressions are matched on single lines. One with a fixed text keeps the scan of a large log fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.facts import Fact, declared_facts
from pytest_dlperf.formats.keyed import AnyRecord, declared_record
from pytest_dlperf.formats.printed import BrokenContractError, amount, shown
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.work import TIMING_GROUPS, Covers, RateScope, StepsIn, TimeKind, Timing


class Ranks(StrEnum):
    """The ranks that print into a log."""

    ONE = "one"
    """One process only, for the whole run."""
    LOCAL = "local"
    """Every rank of the log's node; without a ``rank`` group they cannot be told apart."""
    NODES = "nodes"
    """One process of each node, as where ``srun`` has started a ``torchrun`` on each."""
    ALL = "all"
    """Every rank of the run, as where one command has started them all."""

    def printers(self, case: Case) -> int:
        """Say how many print into a log."""
        if self is Ranks.ONE:
            return 1
        topology = case.topology
        if self is Ranks.NODES:
            return topology.nodes
        return topology.devices_per_node if self is Ranks.LOCAL else topology.world_size


class WhichNode(StrEnum):
    """The nodes whose logs hold a run's steps, or a metric."""

    FIRST = "first"
    LAST = "last"
    ANY = "any"
    """At least one of them."""
    EACH = "each"

    def may_be(self, node: int, nodes: int) -> bool:
        """Say whether it may be this one of so many that have a log."""
        if self is WhichNode.FIRST:
            return node == 0
        return self is not WhichNode.LAST or node == nodes - 1


class Rule(Enum):
    """A definition of throughput that the original benchmark published."""

    MEAN_SPEED = "arithmetic mean of each line's own speed"
    MEAN_DURATION = "global batch over the mean duration of the lines"
    ELAPSED = "samples between two lines over the time between their stamps"
    MEAN_RATE = "arithmetic mean of the printed speeds"


class JoinedRecords(Enum):
    """What the original takes from a line on which several records stand.

    It falls out of where its greedy patterns end up.
    """

    FIRST = "the first record"
    LAST = "the last record"
    LAST_STEP = "the time of the first record, the step number of the last"


class Published(Struct, frozen=True, kw_only=True):
    """The original benchmark's definition of throughput, from lines of a log.

    ``only_steps_above`` leaves out lines by their printed step number, ``only_first_epoch`` by
    their epoch. ``min_warmup`` is the least warm-up that the original reckons with, whatever it
    was asked for. ``print_interval`` is the one for which the lines stand for what they shall; the
    original counted one line per interval. ``lines_grow_with_nodes`` multiplies that by the number
    of nodes, as the original did for logs into which more than one rank prints. ``time_of_day``
    leaves out the stamps' dates. ``record`` is what it went by, where ``steady`` takes another time
    of the same lines.
    """

    rule: Rule
    glued: JoinedRecords = JoinedRecords.FIRST
    only_steps_above: int | None = None
    only_first_epoch: bool = False
    min_warmup: int = 0
    print_interval: int | None = None
    lines_grow_with_nodes: bool = False
    time_of_day: bool = False
    record: Expression | None = None


class LogFormat(Struct, frozen=True, kw_only=True, dict=True):
    """How a trainer's log shows its steps.

    ``record`` has the named group ``step``, may have ``epoch`` and ``rank``, and one group named
    by a ``Timing``; without one, what counts is when the supervisor had the record. With
    ``epoch_length`` it says how many steps an epoch has.
    """

    name: str
    record: AnyRecord
    first_step: int | None = None
    """The number of the first step; ``None``: 0 where the log's first record has step 0, else 1."""
    ranks: Ranks = Ranks.ONE
    rate_scope: RateScope = RateScope.GLOBAL
    covers: Covers | None = None
    """What a duration or speed is of; by default, of the last step, or since the last record."""
    settling_steps: int = 0
    """Steps that are left out before the warm-up, as the original benchmark did."""
    step_every: int | None = None
    """How many steps a record stands for, where it has no number: records are counted."""
    steps_in: StepsIn = StepsIn.STEPS
    case: Case | None = None
    """What the log is read for; ``of`` sets it."""
    first_epoch: int = 1
    """What the first epoch is called, at most."""
    even_epochs: bool = False
    """Whether all epochs of a run have as many steps."""
    facts: tuple[Fact, ...] = ()
    """They count wherever they stand."""
    options: frozenset[str] = frozenset()
    """The options that cases of the system have: facts of others tell nothing of a case."""
    published: Published | None = None

    def __post_init__(self) -> None:
        if (problem := self._problem({*self.record.groupindex})) is not None:
            raise ValueError(f"log format {self.name!r}: {problem}")
        if self.covers is None:
            is_rate = self.timing.kind is TimeKind.RATE
            force_setattr(self, "covers", Covers.SINCE_LAST if is_rate else Covers.LAST_STEP)

    def _problem(self, groups: set[str]) -> str | None:
        timings = [name for name in TIMING_GROUPS if name in groups]
        kind = self.timing.kind
        of_steps = kind is not TimeKind.MOMENT
        problems = {
            f"unknown group {', '.join(sorted(groups - _GROUPS))} in the record's pattern; known "
            f"are step, epoch, rank, {_TIMING_NAMES}": groups > groups & _GROUPS,
            "the record's pattern has no group 'step'; write (?P<step>[0-9]+) where the step's "
            "number stands, or 'step: count' if there is none": (
                self.step_every is None and "step" not in groups
            ),
            "records are counted only without step, epoch and rank": (
                self.step_every is not None and groups & {"step", "epoch", "rank"}
            ),
            "records of several ranks are counted only where they print durations or speeds": (
                self.step_every is not None and self.ranks is not Ranks.ONE and not of_steps
            ),
            f"the record's pattern needs one group out of {_TIMING_NAMES}, and has "
            f"{' and '.join(timings)}": len(timings) > 1,
            "'covers: total_since_last' is of durations, such as seconds; "
            f"{self.timing.value} has no total": (
                self.covers is Covers.TOTAL_SINCE_LAST and kind is not TimeKind.DURATION
            ),
            "means since the start can only be told apart of one process, or with a group 'rank'": (
                self.covers is Covers.SINCE_START and not self.has_one_order
            ),
        }
        return next((problem for problem, is_so in problems.items() if is_so), None)

    @cached_property
    def timing(self) -> Timing:
        """The time on a record, by the group that the record has."""
        groups = self.record.groupindex
        return next((each for each in Timing if each.value in groups), Timing.ARRIVAL)

    def of(self, case: Case) -> LogFormat:
        """Return the format as it is of a case."""
        return replace(self, case=case)

    @property
    def counted_per_step(self) -> int:
        """By what a printed step is divided."""
        if self.case is None or self.steps_in is StepsIn.STEPS:
            return 1
        return self.case.global_batch

    @property
    def records_per_count(self) -> int:
        """How many records a counted step has: one of each rank that prints."""
        return 1 if self.case is None else self.ranks.printers(self.case)

    @property
    def renumbers(self) -> bool:
        """Whether steps have other numbers than those that are printed, or none is."""
        return self.step_every is not None or self.steps_in is not StepsIn.STEPS

    @property
    def has_one_order(self) -> bool:
        """Whether each record is known to follow the one before it of the same process."""
        return self.ranks is Ranks.ONE or self.labels_ranks

    @property
    def as_published(self) -> LogFormat:
        """The format by which its published definition reads a log."""
        if self.published is None or self.published.record is None:
            return self
        return replace(self, record=self.published.record)

    @property
    def labels_ranks(self) -> bool:
        """Whether each record says which rank printed it."""
        return "rank" in self.record.groupindex


_TIMING_NAMES: Final = ", ".join(TIMING_GROUPS)
_GROUPS: Final = {"step", "epoch", "epoch_length", "rank", *TIMING_GROUPS}
_WORDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "steps_in": StepsIn,
    "ranks": Ranks,
    "rate_scope": RateScope,
    "covers": Covers,
}


def custom_format(  # noqa: PLR0913 - as a system file says it, by name
    name: str,
    *,
    record: str | None = None,
    json: Mapping[str, str] | None = None,
    csv: Mapping[str, str] | None = None,
    where: Mapping[str, str] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> LogFormat:
    """Make a format of what a record looks like, as a system file declares it.

    A record is one of three. ``record`` is an expression, which is matched within single lines that
    have ended; ``json`` and ``csv`` are the keys of the same, by group, and ``where`` what the
    values of others have to be. ``facts`` and ``options`` are what ``declared_facts`` takes, and
    ``more`` are other fields of a ``LogFormat``, words as in a system file.

    Raises:
        ValueError: The expression or another value cannot be used; the message says why.
    """
    given = ((key, one) for key, one in more.items() if one is not None)
    said = {key: _WORDS[key](one) if key in _WORDS else one for key, one in given}
    try:
        found = declared_record(record, json, csv, where)
        said["facts"] = declared_facts(facts, options)
    except ValueError as error:
        raise ValueError(f"log format {name!r}: {error}") from error
    return LogFormat(name=name, record=found, **said)


NO_STEPS: Final = LogFormat(name="none", record=Expression("(?!)(?P<step>)(?P<seconds>)"))
"""That of a program without steps: nothing is a record."""


def step_seconds(log_format: LogFormat, text: bytes, offset: int, case: Case) -> float:
    """Read what a step took, in seconds: the duration of one, or by a speed."""
    timing = log_format.timing
    if timing.kind is not TimeKind.RATE:
        if b"," in text and timing is not Timing.MILLISECONDS:
            raise BrokenContractError(
                f"the step's time is {shown(text)}, in which the comma may stand for a point or "
                "for thousands; print a point",
                offset=offset,
            )
        seconds = amount(text, what="the step's time", offset=offset)
        return seconds / 1000 if timing is Timing.MILLISECONDS else seconds
    rate = amount(text, what="the printed speed", offset=offset)
    if timing is Timing.STEPS_PER_SECOND:
        return 1 / rate
    if timing is Timing.TOKENS_PER_SECOND:
        if case.sequence_length is None:
            raise BrokenContractError(
                f"the log prints tokens per second, and the case {case.id} has no sequence_length",
                offset=offset,
            )
        rate /= case.sequence_length
    return case.global_batch / (rate * case.rates_per_run(log_format.rate_scope))

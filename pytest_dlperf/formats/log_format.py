"""Log formats as data: how the log of each trainer shows a step.

A format says how to find the records of steps in a log's bytes, what the time on a record means,
which ranks print into the log, what the log tells about the run besides its steps, and how the
original benchmark defined the throughput, where it did.

Expressions are matched on single lines. One with a fixed text keeps the scan of a large log fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from pytest_dlperf.formats.expressions import Expression, compiled
from pytest_dlperf.formats.facts import Fact, declared_facts
from pytest_dlperf.formats.keyed import CsvKeys, JsonKeys
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


class LogFormat(Struct, frozen=True, kw_only=True):
    """How a trainer's log shows its steps.

    ``record`` has the named group ``step``, may have ``epoch`` and ``rank``, and one group named
    by a ``Timing``; without one, what counts is when the supervisor had the record. With
    ``epoch_length`` it says how many steps an epoch has.

    ``first_step`` is the number that the first step is printed with. ``None`` leaves it to the
    log: 0 when its first record has step 0, else 1.

    ``settling_steps`` shift the window of ``steady``: so many steps are left out before the
    warm-up begins, as the original benchmark did.

    ``facts`` count wherever they stand.
    """

    name: str
    record: Expression | JsonKeys | CsvKeys
    first_step: int | None
    ranks: Ranks
    rate_scope: RateScope = RateScope.GLOBAL
    covers: Covers | None = None
    """What a duration or speed is of; by default, of the last step, or since the last record."""
    settling_steps: int = 0
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
    options: frozenset[str] = frozenset()
    """The options that cases of the system have: facts of others tell nothing of a case."""
    published: Published | None = None
    timing: Timing = Timing.ARRIVAL
    """Always taken from the groups of ``record``."""

    def __post_init__(self) -> None:
        groups = {*self.record.groupindex}
        unknown = groups - {"step", "epoch", "epoch_length", "rank", *TIMING_GROUPS}
        if unknown:
            raise ValueError(
                f"log format {self.name!r}: unknown group {', '.join(sorted(unknown))} in the "
                f"record's pattern; known are step, epoch, rank, {_TIMING_NAMES}"
            )
        self._check_steps(groups)
        found = [timing for timing in Timing if timing.value in groups]
        if len(found) > 1:
            has = " and ".join(timing.value for timing in found)
            raise ValueError(
                f"log format {self.name!r}: the record's pattern needs one group out of "
                f"{_TIMING_NAMES}, and has {has}"
            )
        timing = found[0] if found else Timing.ARRIVAL
        force_setattr(self, "timing", timing)
        if self.covers is None:
            covers = Covers.SINCE_LAST if timing.kind is TimeKind.RATE else Covers.LAST_STEP
            force_setattr(self, "covers", covers)

        if self.covers is Covers.TOTAL_SINCE_LAST and timing.kind is not TimeKind.DURATION:
            raise ValueError(
                f"log format {self.name!r}: 'covers: total_since_last' is of durations, such as "
                f"seconds; {timing.value} has no total"
            )
        if self.covers is Covers.SINCE_START and not self.has_one_order:
            raise ValueError(
                f"log format {self.name!r}: means since the start can only be told apart of one "
                "process, or with a group 'rank'"
            )

    def _check_steps(self, groups: set[str]) -> None:
        if self.step_every is None:
            if "step" not in groups:
                raise ValueError(
                    f"log format {self.name!r}: the record's pattern has no group 'step'; write "
                    "(?P<step>[0-9]+) where the step's number stands, or 'step: count' if there "
                    "is none"
                )
        elif groups & {"step", "epoch", "rank"}:
            raise ValueError(
                f"log format {self.name!r}: records are counted only without step, epoch and rank"
            )
        elif self.ranks is not Ranks.ONE and not groups & _OF_STEPS:
            raise ValueError(
                f"log format {self.name!r}: records of several ranks are counted only where they "
                "print durations or speeds"
            )

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
_OF_STEPS: Final = {each.value for each in Timing if each.kind is not TimeKind.MOMENT}


def custom_format(  # noqa: PLR0913 - a format has so many sides; all are given by name
    name: str,
    *,
    record: str | None = None,
    json: Mapping[str, str] | None = None,
    csv: Mapping[str, str] | None = None,
    where: Mapping[str, str] = MappingProxyType({}),
    first_step: int | None = None,
    step_every: int | None = None,
    steps_in: str = "steps",
    ranks: str = "one",
    rate_scope: str = "global",
    covers: str | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
) -> LogFormat:
    """Make a format of what a record looks like, as a system file declares it.

    A record is one of three. ``record`` is an expression, which is matched within single lines that
    have ended, with the groups ``step``, optionally ``epoch`` and ``rank``, and one named by a
    ``Timing``. ``json`` and ``csv`` are the keys of the same, by group, and ``where`` what the
    values of others have to be.

    ``first_step`` needs to be given for runs that resume in the middle. With ``step_every`` records
    are counted, as one of so many steps each. ``steps_in``, ``ranks``, ``rate_scope`` and
    ``covers`` are values of ``StepsIn``, ``Ranks``, ``RateScope`` and ``Covers``. ``facts`` and
    ``options`` are what ``declared_facts`` takes.

    Raises:
        ValueError: The expression or another value cannot be used; the message says why.
    """
    try:
        pattern = _record(record, json, csv, where)
        declared = declared_facts(facts, options)
    except ValueError as error:
        raise ValueError(f"log format {name!r}: {error}") from error
    return LogFormat(
        name=name,
        record=pattern,
        first_step=first_step,
        step_every=step_every,
        steps_in=StepsIn(steps_in),
        ranks=Ranks(ranks),
        rate_scope=RateScope(rate_scope),
        covers=None if covers is None else Covers(covers),
        facts=declared,
    )


def _record(
    record: str | None,
    json: Mapping[str, str] | None,
    csv: Mapping[str, str] | None,
    where: Mapping[str, str],
) -> Expression | JsonKeys | CsvKeys:
    if [record, json, csv].count(None) != 2:  # noqa: PLR2004 - one of three
        raise ValueError("a record is one of 'record', 'json' and 'csv'")
    if record is not None:
        if where:
            raise ValueError("'where' is of 'json' and 'csv'; write the text into the expression")
        return compiled(record)
    if json is not None:
        return JsonKeys(keys=dict(json), where=dict(where))
    return CsvKeys(keys=dict(csv or {}), where=dict(where))


NO_STEPS: Final = LogFormat(
    name="none",
    record=compiled("(?!)(?P<step>)(?P<seconds>)"),
    first_step=None,
    ranks=Ranks.ONE,
)
"""That of a program without steps: nothing is a record."""


def step_seconds(log_format: LogFormat, text: bytes, offset: int, case: Case) -> float:
    """Read what a step took, in seconds: the duration of one, or by a speed."""
    timing = log_format.timing
    if timing.kind is TimeKind.RATE:
        return case.global_batch / _samples_per_second(log_format, text, offset, case)
    if b"," in text and timing is not Timing.MILLISECONDS:
        raise BrokenContractError(
            f"the step's time is {shown(text)}, in which the comma may stand for a point or for "
            "thousands; print a point",
            offset=offset,
        )
    seconds = amount(text, what="the step's time", offset=offset)
    return seconds / 1000 if timing is Timing.MILLISECONDS else seconds


def _samples_per_second(log_format: LogFormat, text: bytes, offset: int, case: Case) -> float:
    """Read a speed, in samples per second over all devices."""
    rate = amount(text, what="the printed speed", offset=offset)
    if log_format.timing is Timing.STEPS_PER_SECOND:
        return rate * case.global_batch
    if log_format.timing is Timing.TOKENS_PER_SECOND:
        if case.sequence_length is None:
            raise BrokenContractError(
                f"the log prints tokens per second, and the case {case.id} has no sequence_length",
                offset=offset,
            )
        rate /= case.sequence_length
    return rate * case.rates_per_run(log_format.rate_scope)

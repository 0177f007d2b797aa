"""Log formats as data: how the log of each trainer shows a step.

A format says how to find the records of steps in a log's bytes, what the time on a record means,
which ranks print into the log, what the log tells about the run besides its steps, and how the
original benchmark defined the throughput, where it did.

Patterns are over bytes and begin with a literal, by which the scan of a large log stays fast. None
of the built-in ones matches across a line's end, nor a record whose time may still be growing: a
number counts only with the text that follows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.expressions import compiled
from pytest_dlperf.logs.facts import CASE_FACTS, Fact, declared_fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_dlperf.model.case import Case


class Timing(str, Enum):
    """What the time on a record is; the values name the pattern's groups."""

    SECONDS = "seconds"
    """The step's own duration."""
    MILLISECONDS = "milliseconds"
    """The step's own duration, in thousandths."""
    TIMESTAMP = "timestamp"
    """The time at which the step had ended."""
    RATE = "samples_per_second"
    """The speed, averaged over the steps since the record before."""


class Ranks(str, Enum):
    """Who prints into a log."""

    ONE = "one"
    """One process only, for the whole run."""
    LOCAL = "local"
    """Every rank of the log's node; without a ``rank`` group they cannot be told apart."""


class RateScope(str, Enum):
    """What a printed speed covers."""

    GLOBAL = "global"
    NODE = "node"
    RANK = "rank"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The original benchmark's definition of throughput, from lines of a log.

    ``only_steps_above`` leaves out lines by their printed step number, ``only_first_epoch`` by
    their epoch. ``min_warmup`` is the least warm-up that the original reckons with, whatever it
    was asked for. ``print_interval`` is the one for which the lines stand for what they shall; the
    original counted one line per interval. ``lines_grow_with_nodes`` multiplies that by the number
    of nodes, as the original did for logs into which more than one rank prints. ``time_of_day``
    leaves out the stamps' dates.
    """

    rule: Rule
    glued: JoinedRecords = JoinedRecords.FIRST
    only_steps_above: int | None = None
    only_first_epoch: bool = False
    min_warmup: int = 0
    print_interval: int | None = None
    lines_grow_with_nodes: bool = False
    time_of_day: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """How a trainer's log shows its steps.

    ``record`` has the named group ``step``, may have ``epoch`` and ``rank``, and one group named
    by a ``Timing``. Where the stamp stands at the beginning of the line, far from what tells a
    step's line from others, it is ``stamp_in_front`` that has the group ``timestamp``; it must
    end where the record begins.

    ``first_step`` is the number that the first step is printed with. ``None`` leaves it to the
    log: 0 when its first record has step 0, else 1.

    ``settling_steps`` shift the window of ``steady``: so many steps are left out before the
    warm-up begins, as the original benchmark did.

    ``facts`` stand before the first step, with ``whole_lines`` also on its line, and are looked for
    until then; ``devices`` is a pattern
    whose distinct matches, anywhere up to the last record needed, are the node's devices.
    """

    name: str
    record: re.Pattern[bytes]
    stamp_in_front: re.Pattern[bytes] | None = None
    first_step: int | None
    ranks: Ranks
    rate_scope: RateScope = RateScope.GLOBAL
    settling_steps: int = 0
    stamps_sort: bool = False
    """Whether a later stamp of the same day is also the greater text."""
    even_epochs: bool = False
    """Whether all epochs of a run have as many steps."""
    whole_lines: bool = False
    """Whether records are matched line by line, and on lines that have ended only."""
    facts: tuple[Fact, ...] = ()
    devices: re.Pattern[bytes] | None = None
    published: Published | None = None
    timing: Timing = field(init=False)

    def __post_init__(self) -> None:
        """Check the patterns' groups, and take the kind of timing from them."""
        groups = {*self.record.groupindex}
        if self.stamp_in_front is not None:
            groups |= {*self.stamp_in_front.groupindex}
        unknown = groups - {"step", "epoch", "rank", *(timing.value for timing in Timing)}
        if unknown:
            raise ValueError(
                f"log format {self.name!r}: unknown group {', '.join(sorted(unknown))} in the "
                f"record's pattern; known are step, epoch, rank, {_timing_names()}"
            )
        if "step" not in groups:
            raise ValueError(
                f"log format {self.name!r}: the record's pattern has no group 'step'; write "
                "(?P<step>[0-9]+) where the step's number stands"
            )
        found = [timing for timing in Timing if timing.value in groups]
        if len(found) != 1:
            has = " and ".join(timing.value for timing in found) or "none"
            raise ValueError(
                f"log format {self.name!r}: the record's pattern needs one group out of "
                f"{_timing_names()}, and has {has}"
            )
        object.__setattr__(self, "timing", found[0])

    @property
    def labels_ranks(self) -> bool:
        """Whether each record says which rank printed it."""
        return "rank" in self.record.groupindex


def _timing_names() -> str:
    return ", ".join(timing.value for timing in Timing)


_WORLD_SIZE: Final = CASE_FACTS["world_size"]
_BATCH_PER_REPLICA: Final = CASE_FACTS["batch_per_replica"]


def _batch_per_node(case: Case) -> int | None:
    return case.batch_per(case.topology.nodes)


def _fact(name: str, pattern: bytes, declared: Callable[[Case], object]) -> Fact:
    return Fact(name=name, pattern=re.compile(pattern), declared=declared)


# All repetitions are bounded: a line may be long and full of begins of records, and each of them
# must cost little.
#
# Numbers and steps are bounded, so that no text can become an integer of thousands of digits.
_STEP = rb"[0-9]{1,15}"
# Wide enough for nan, inf and signs: what is no proper time must be seen, not skipped.
_NUMBER = rb"[-+.0-9a-zA-Z]{1,40}"
_COLOUR = rb"(?:\x1b\[[0-9;]{0,20}m){0,4}"
_COUNT = rb"([0-9]{1,15})\b"

_PADDLE_RESNET: Final = LogFormat(
    # PaddlePaddle/models release/1.8, PaddleCV/image_classification, utils/utility.py. What
    # stands in front differs between the versions of Paddle, so nothing there is looked at. The
    # rest of the record holds no square bracket: two records never count as one.
    name="paddle_resnet",
    record=re.compile(
        rb"Pass (?P<epoch>%b), train batch (?P<step>%b)\] [^\[\n\r\0]{0,400}, "
        rb"elapse (?P<seconds>%b) sec" % (_STEP, _STEP, _NUMBER)
    ),
    first_step=0,
    ranks=Ranks.ONE,
    facts=(
        # The blank in front tells it from test_batch_size.
        _fact("batch_size (of a node)", rb" batch_size : " + _COUNT, _batch_per_node),
        _fact("PADDLE_TRAINERS_NUM", rb"PADDLE_TRAINERS_NUM\W{1,4}" + _COUNT, _WORLD_SIZE),
    ),
    # PaddlePaddle/resnet50v1.5/extract_paddle_logs.py
    published=Published(rule=Rule.MEAN_SPEED, glued=JoinedRecords.LAST),
)

# All parameters stand on one line, which can be longer than other records, but never holds two.
_PARAMETERS = rb" - PARAMETER (?:[^-\n\r\0]|-(?! PARAMETER )){0,8000}"

_DLLOGGER: Final = LogFormat(
    # NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets with dllogger. A stamp of a
    # whole second comes without a fraction.
    name="dllogger",
    record=re.compile(
        rb"DLL %b(?P<timestamp>[0-9][-0-9:. ]{18,25})"
        rb"%b - %bEpoch: (?P<epoch>%b) Iteration: (?P<step>%b) {1,9}train\."
        % (_COLOUR, _COLOUR, _COLOUR, _STEP, _STEP)
    ),
    first_step=1,
    ranks=Ranks.ONE,
    settling_steps=5,
    stamps_sort=True,
    even_epochs=True,
    facts=(
        _fact("batch_size", _PARAMETERS + rb" batch_size : " + _COUNT, _BATCH_PER_REPLICA),
        _fact("world_size", _PARAMETERS + rb" world_size : " + _COUNT, _WORLD_SIZE),
    ),
    # NVIDIADeepLearningExamples/PyTorch/resnet50v1.5/extract_pytorch_logs_time.py
    published=Published(rule=Rule.ELAPSED, only_steps_above=5, print_interval=1),
)

_PYTORCH_IMAGENET: Final = LogFormat(
    # pytorch/examples, imagenet/main.py. Older revisions count from 0, later ones from 1. The
    # original leaves out the indexes 0 to 5, which are six steps.
    name="pytorch_imagenet",
    record=re.compile(
        rb"Epoch: \[(?P<epoch>%b)\]\[ {0,15}(?P<step>%b)/ {0,15}[0-9]{1,15}\][ \t]{1,9}"
        rb"Time {1,9}(?P<seconds>%b) \(" % (_STEP, _STEP, _NUMBER)
    ),
    first_step=None,
    ranks=Ranks.LOCAL,
    settling_steps=6,
    devices=re.compile(rb"Use GPU: " + _COUNT),
    # PyTorch/resnet50v1.5/extract_pytorch_logs_time.py
    published=Published(rule=Rule.MEAN_DURATION, glued=JoinedRecords.LAST_STEP, only_steps_above=5),
)

_PLSC: Final = LogFormat(
    # PaddlePaddle/PLSC 1.x, plsc/entry.py. The speed is global. The first line, of batch 0, is
    # one slow step alone; each later one stands for the period that it ends.
    name="plsc",
    record=re.compile(
        rb"Pass:(?P<epoch>%b) batch:(?P<step>%b) [^P\n\r\0]{0,400}"
        rb"qps:(?P<samples_per_second>-?[0-9]{1,15}\.[0-9]{2}(?![0-9])|-?inf\b|nan\b)"
        % (_STEP, _STEP)
    ),
    first_step=0,
    ranks=Ranks.LOCAL,
    rate_scope=RateScope.GLOBAL,
    settling_steps=1,
    facts=(
        _fact("train_batch_size", rb"\ttrain_batch_size: " + _COUNT, _BATCH_PER_REPLICA),
        _fact("num_trainers", rb"num_trainers: " + _COUNT, _WORLD_SIZE),
    ),
    # The extraction script of the arcface benchmark: means over the lines of all ranks.
    published=Published(
        rule=Rule.MEAN_RATE,
        only_first_epoch=True,
        print_interval=10,
        lines_grow_with_nodes=True,
    ),
)

_TF_MODELS_BERT: Final = LogFormat(
    # tensorflow/models r2.3.0, official/nlp/bert, by absl's logging. Where TensorFlow's own
    # handler prints each record a second time, the copy has no stamp and is passed over.
    name="tf_models_bert",
    record=re.compile(rb"Train Step: (?P<step>%b)/" % _STEP),
    stamp_in_front=re.compile(
        rb"[IWEF](?P<timestamp>[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?) "
        rb"[^\n\r\0\]]{1,100}\] ?%b$" % _COLOUR
    ),
    first_step=1,
    ranks=Ranks.ONE,
    facts=(
        _fact("Number of cores used", rb"Number of cores used : {1,9}([0-9]{1,15})\b", _WORLD_SIZE),
    ),
    # TensorFlow/bert/extract_tensorflow_logs_time.py
    published=Published(rule=Rule.ELAPSED, min_warmup=20, print_interval=1, time_of_day=True),
)

_DLPERF: Final = LogFormat(
    # The trainers of this package.
    name="dlperf",
    record=re.compile(
        rb"dlperf step rank=(?P<rank>%b) step=(?P<step>%b) time=(?P<timestamp>%b) loss="
        % (_STEP, _STEP, _NUMBER)
    ),
    first_step=1,
    ranks=Ranks.LOCAL,
    facts=tuple(
        _fact(
            name, rb"dlperf run [^\n\r\0]{0,200}\b%b=([0-9a-z]{1,15})\s" % name.encode(), declared
        )
        for name, declared in (
            ("world_size", _WORLD_SIZE),
            ("nodes", CASE_FACTS["nodes"]),
            ("devices_per_node", CASE_FACTS["devices_per_node"]),
            ("batch_per_device", _BATCH_PER_REPLICA),
            ("precision", CASE_FACTS["precision"]),
        )
    ),
)

BUILTIN_FORMATS: Final[Mapping[str, LogFormat]] = MappingProxyType(
    {
        log_format.name: log_format
        for log_format in (
            _PADDLE_RESNET,
            _DLLOGGER,
            _PYTORCH_IMAGENET,
            _PLSC,
            _TF_MODELS_BERT,
            _DLPERF,
        )
    }
)


def merged_formats(more: Iterable[LogFormat]) -> dict[str, LogFormat]:
    """Merge the formats of this package with those that plugins add; ``ValueError`` on a clash."""
    formats = dict(BUILTIN_FORMATS)
    for item in more:
        if item.name in formats:
            raise ValueError(f"the log format {item.name!r} is already registered")
        formats[item.name] = item
    return formats


def custom_format(  # noqa: PLR0913 - a format has so many sides; all are given by name
    name: str,
    *,
    record: str,
    first_step: int | None = None,
    ranks: str = "one",
    rate_scope: str = "global",
    facts: Mapping[str, str] = MappingProxyType({}),
) -> LogFormat:
    """Make a format of a regular expression for one record, as a system file declares it.

    Named groups: ``step``, optionally ``epoch`` and ``rank``, and one of ``seconds`` or
    ``milliseconds`` (how long the step took), ``timestamp`` (when it had ended: a date, also one
    like ``0915``, and a time, a time alone, or seconds as a number), ``samples_per_second``. The
    expression is matched within single lines that have ended; ``^`` and ``$`` are a line's begin
    and end, and a carriage return ends a line too. It is fastest when it begins with a literal.

    ``first_step`` needs to be given for runs that resume in the middle; ``ranks`` and
    ``rate_scope`` are values of ``Ranks`` and ``RateScope``. ``facts`` are expressions, by names of
    ``CASE_FACTS``, whose only group is what the log says of its run.

    Raises:
        ValueError: The expression or another value cannot be used; the message says why.
    """
    try:
        pattern = compiled(record)
        declared = tuple(declared_fact(fact, said) for fact, said in facts.items())
    except ValueError as error:
        raise ValueError(f"log format {name!r}: {error}") from error
    if first_step is not None and first_step < 0:
        raise ValueError(f"log format {name!r}: first_step is 0 or above, not {first_step}")
    try:
        who, scope = Ranks(ranks), RateScope(rate_scope)
    except ValueError as error:
        raise ValueError(
            f"log format {name!r}: {error}; ranks is 'one' or 'local', "
            "rate_scope is 'global', 'node' or 'rank'"
        ) from None
    return LogFormat(
        name=name,
        record=pattern,
        first_step=first_step,
        ranks=who,
        rate_scope=scope,
        whole_lines=True,
        facts=declared,
    )

"""A system file as a person writes it: its keys, with their meanings."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.formats.declared import Over
from pytest_dlperf.formats.log_format import Ranks, WhichNode
from pytest_dlperf.model.keys import (
    TOPOLOGY,
    Expression,
    Line,
    Name,
    OneOrMore,
    Operations,
    Part,
    Percent,
    Positive,
    Precision,
    Scalar,
    SomeOf,
    Text,
    TopologyText,
    text,
)
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.metric import Better, Sanity, Statistic
from pytest_dlperf.model.work import TIMING_GROUPS, Covers, Layout, RateScope, StepsIn

NO_REFERENCE: Final = "none"
GROUPS = ("step", "epoch", "rank", *TIMING_GROUPS)
"""What a record may say, by name."""

_Group = Annotated[
    str, text(f"^({'|'.join(GROUPS)})$", f"a group of a record: {', '.join(GROUPS)}")
]
# A whole system that is skipped or expected to fail would be a green that means nothing.
_Mark = Annotated[
    str,
    text(
        r"^(?!(dlperf|filterwarnings|parametrize|skip|skipif|usefixtures|xfail)$)"
        r"[A-Za-z][A-Za-z0-9_]*$",
        "a marker of letters, digits and underscores, and none of pytest's own",
    ),
]
_Unit = Annotated[
    str,
    text(
        r"^(tokens/s|(?![kKmM]?[tT]([oO][kK]([eE][nN][sS]?)?|[pP][sS])\b)"
        r"[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*)$",
        "a unit such as images/s; tokens are counted in tokens/s",
    ),
]
_LogName = Annotated[str, text(r"^[^./\x00-\x1f][^/\x00-\x1f]*$", "the first part of a file name")]
_StepNumber = Annotated[int, Meta(ge=0, le=10**9)]
_Reference = Annotated[
    str, text(f"^({TOPOLOGY}|{NO_REFERENCE})$", "a topology such as 1n8g, or none")
]
_Probes = Annotated[SomeOf[Text], Meta(title="a list of probes, as in [host-memory, torch-gloo]")]


class Fact(Part, frozen=True, kw_only=True):
    """A fact of a run whose printed values have meanings."""

    record: Expression
    """An expression with one group, the value."""
    values: dict[str, OneOrMore[Scalar]]
    """What each printed value means to a case; a list if each of several will do."""


class OptionFact(Part, frozen=True, kw_only=True):
    """An option of a run whose printed values have meanings."""

    record: Expression
    """An expression with one group, the value."""
    values: dict[str, bool]
    """What each printed value means: true if the option is there."""


class Every(Part, frozen=True, kw_only=True):
    """Records without a number, each of several steps."""

    every: Positive
    """Count each record as so many steps."""


class Format(Part, frozen=True, kw_only=True):
    """How a step's record looks."""

    record: Expression | None = None
    """An expression for a step's record, with named groups for what it has."""
    json: dict[_Group, Text] | None = None
    """The keys of a record that is a JSON object or a Python dictionary, by group."""
    csv: dict[_Group, Text] | None = None
    """The columns of records that are rows of CSV, by group."""
    where: dict[str, Scalar] = {}
    """Values that a record of JSON or CSV must have, by key; * for any value."""
    first_step: _StepNumber | None = None
    """The number that the first step is printed with; default: 0 if the log's first record has step
    0, or is one below a multiple of the interval (19, 39, …), else 1."""
    step: Literal["count"] | Every | None = None
    """Records have no number: count each as one step."""
    steps_in: StepsIn = StepsIn.STEPS
    """What the step's number counts. Samples are divided by the global batch."""
    ranks: Ranks = Ranks.ONE
    """Who prints into a log: one process, those of the node, one of each node, or all."""
    rate_scope: RateScope = RateScope.GLOBAL
    """What a printed speed covers."""
    covers: Covers | None = None
    """The steps that a printed duration or speed is of; default: since_last for a speed, else
    last_step. A moving mean cannot be read, as its steps overlap from record to record: take a time
    stamp, or the value of the last step."""
    facts: dict[Name, Expression | Fact] = {}
    """What the log says about its run. A log that contradicts its case is invalid."""
    options: dict[Name, Expression | OptionFact] = {}
    """The options that the log says its run has."""


class Log(Part, frozen=True, kw_only=True):
    """How logs are named and read."""

    name: _LogName | None = None
    """First part of a log's file name; default: the framework."""
    format: str | Format | None = None
    """The name of a built-in format, or how a step's record looks."""
    node: Literal["first", "last", "each"] = "first"
    """The nodes whose logs show steps."""


class Flops(Part, frozen=True, kw_only=True):
    """Floating-point operations that a training needs, for a token or for a sample."""

    flops_per_token: Operations | None = None
    """Operations that training on one token takes, forward and backward; for mfu."""
    flops_per_sample: Operations | None = None
    """The same for one sample."""


# A results file of a newer version may have more keys in these, a system file may not.
class LayoutKeys(Layout, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one model is spread over devices."""


class SanityKeys(Sanity, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run's samples have to fulfil, whatever was accepted."""


class Entry(Flops, frozen=True, kw_only=True):
    """One entry of ``cases``: a case for each combination of listed values."""

    precision: OneOrMore[Precision] = ()
    """As in fp32. Each combination of listed values is a case."""
    axes: dict[str, OneOrMore[Scalar]] = {}
    """What the cases of a probe differ by: one for each combination of values."""
    batch_per_device: OneOrMore[Positive] = ()
    """Samples that one device takes in a step."""
    batch_per_replica: OneOrMore[Positive] = ()
    """Its name with 'parallel': samples of one data-parallel replica in a step."""
    global_batch: OneOrMore[Positive] = ()
    """Samples of the whole run in a step, instead of those."""
    sequence_length: OneOrMore[Positive] = ()
    """Tokens of one sample."""
    parallel: OneOrMore[LayoutKeys] = ()
    """How one model is spread over devices; default: each device has all of it."""
    topologies: SomeOf[TopologyText]
    """Nodes and devices per node of each case, as in 4n8g."""
    reference: Annotated[
        str, text(f"^({TOPOLOGY}|{NO_REFERENCE})$", "a topology such as 1n8g, or none")
    ] = "1n1g"
    """The topology that speedups are taken over, or none."""
    options: SomeOf[Name] = ()
    """What else changes the speed."""


class MetricEntry(Part, frozen=True, kw_only=True):
    """How a metric is found in the log, and judged; built-in ones have keys of the latter only."""

    record: Expression | None = None
    """A regular expression, matched within single lines. The group value is the number; step, rank
    and unit may say what it is of. Any other group makes it a family."""
    json: Text | dict[str, Text] | None = None
    """Where a probe's JSON has the number: a dotted path, or paths by group; * is any key."""
    csv: Text | dict[str, Text] | None = None
    """The column of a probe's CSV that has the number, or columns by group."""
    where: dict[str, Scalar] = {}
    """Values that the document or row must have, by key."""
    unit: Line | None = None
    """The unit that the number is kept and shown in."""
    printed_in: Line | None = None
    """The unit that the log prints; default: unit. Multiples of B, J, W and s are known, and k, M,
    G before any unit."""
    better: Better | None = None
    """The better direction. This, sanity or judged: false is required."""
    statistic: Statistic | None = None
    """What makes one number of all; default: median, with over: run last."""
    node: WhichNode | None = None
    """The nodes whose logs have it; default: log.node."""
    over: Over | None = None
    """The part of the log that counts: the measured steps, or all of it; default: window."""
    tolerance_percent: Percent | None = None
    """How much worse the median may be; default: the system's."""
    tolerance_at_least: Scalar | None = None
    """A loss of so much passes, whatever its percentage: 2 s."""
    sanity: Literal["finite", "falls"] | SanityKeys | None = None
    """What each run must satisfy, whatever the baseline; default for loss: finite."""
    judged: bool = True
    """false: record and show it, without a test."""


class SystemKeys(Flops, frozen=True, kw_only=True):
    """What a system file says, and its system keeps as it is."""

    framework: Name
    """First part of the case ids, as in pytorch."""
    model: Name
    """Second part of the case ids, as in resnet50."""
    repeats: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Runs of a case, whose median counts. --dlperf-repeats overrides it."""
    tolerance_percent: Percent = 5.0
    """How much worse than its baseline a metric may be. A metric's own tolerance wins, and a
    baseline's over that."""
    marks: SomeOf[_Mark] = ()
    """pytest markers of its tests, for -m."""
    needs: _Probes = ()
    """Probes that run first on the hosts of a case. If one breaks, it is not started."""
    companions: _Probes = ()
    """Probes that run on the hosts of a case once it is red."""
    resource: Text | None = None
    """What of its hosts a probe measures, as in network."""


class SystemFile(SystemKeys, frozen=True, kw_only=True):
    """One trainer or probe: how it is started, what its logs look like, and its cases."""

    unit: _Unit | None = None
    """Unit of the throughput, as in images/s; tokens/s counts a sample's length."""
    log: Log = Log()
    """How its logs are named and read."""
    window: Window | None = None
    """The steps of a run that are measured. A probe has none."""
    cases: SomeOf[Entry]
    """What is measured: one case for each topology of each entry."""
    metrics: dict[str, MetricEntry] = {}
    """What is judged or recorded besides throughput and speedup, by name."""
    launch: Launch | None = None
    """How to start the trainer. Without it, only existing logs can be judged."""
    extends: Text | None = None
    """The system that this one builds on: one that ships, or a file. Says what differs."""

"""A system file as a person writes it: its keys, with their meanings."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from pytest_dlperf.config.launch_keys import Launch
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
    doc,
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
_Probes = Annotated[SomeOf[Text], Meta(title="a list of probes, as in [host-memory, torch-gloo]")]


class Fact(Part, frozen=True, kw_only=True):
    """A fact of a run whose printed values have meanings."""

    record: Annotated[Expression, doc("An expression with one group, the value.")]
    values: Annotated[
        dict[str, OneOrMore[Scalar]],
        doc("What each printed value means to a case; a list if each of several will do."),
    ]


class OptionFact(Part, frozen=True, kw_only=True):
    """An option of a run whose printed values have meanings."""

    record: Annotated[Expression, doc("An expression with one group, the value.")]
    values: Annotated[
        dict[str, bool], doc("What each printed value means: true if the option is there.")
    ]


class Every(Part, frozen=True, kw_only=True):
    """Records without a number, each of several steps."""

    every: Annotated[Positive, doc("Count each record as so many steps.")]


class Format(Part, frozen=True, kw_only=True):
    """How a step's record looks."""

    record: Annotated[
        Expression | None,
        doc("An expression for a step's record, with named groups for what it has."),
    ] = None
    json: Annotated[
        dict[_Group, Text] | None,
        doc("The keys of a record that is a JSON object or a Python dictionary, by group."),
    ] = None
    csv: Annotated[
        dict[_Group, Text] | None, doc("The columns of records that are rows of CSV, by group.")
    ] = None
    where: Annotated[
        dict[str, Scalar],
        doc("Values that a record of JSON or CSV must have, by key; * for any value."),
    ] = {}
    first_step: Annotated[
        _StepNumber | None,
        doc(
            "The number that the first step is printed with; default: 0 if the log's first record "
            "has step 0, or is one below a multiple of the interval (19, 39, …), else 1."
        ),
    ] = None
    step: Annotated[
        Literal["count"] | Every | None, doc("Records have no number: count each as one step.")
    ] = None
    steps_in: Annotated[
        StepsIn, doc("What the step's number counts. Samples are divided by the global batch.")
    ] = StepsIn.STEPS
    ranks: Annotated[
        Ranks,
        doc("Who prints into a log: one process, those of the node, one of each node, or all."),
    ] = Ranks.ONE
    rate_scope: Annotated[RateScope, doc("What a printed speed covers.")] = RateScope.GLOBAL
    covers: Annotated[
        Covers | None,
        doc(
            "The steps that a printed duration or speed is of; default: since_last for a speed, "
            "else last_step. A moving mean cannot be read, as its steps overlap from record to "
            "record: take a time stamp, or the value of the last step."
        ),
    ] = None
    facts: Annotated[
        dict[Name, Expression | Fact],
        doc("What the log says about its run. A log that contradicts its case is invalid."),
    ] = {}
    options: Annotated[
        dict[Name, Expression | OptionFact], doc("The options that the log says its run has.")
    ] = {}


class Log(Part, frozen=True, kw_only=True):
    """How logs are named and read."""

    name: Annotated[
        _LogName | None, doc("First part of a log's file name; default: the framework.")
    ] = None
    format: Annotated[
        str | Format | None, doc("The name of a built-in format, or how a step's record looks.")
    ] = None
    node: Annotated[Literal["first", "last", "each"], doc("The nodes whose logs show steps.")] = (
        "first"
    )
    file: Annotated[
        Text | None,
        doc("A file that the trainer writes its steps into. Its lines are added to the log."),
    ] = None


class Flops(Part, frozen=True, kw_only=True):
    """Floating-point operations that a training needs, for a token or for a sample."""

    flops_per_token: Annotated[
        Operations | None,
        doc("Operations that training on one token takes, forward and backward; for mfu."),
    ] = None
    flops_per_sample: Annotated[Operations | None, doc("The same for one sample.")] = None


# A results file of a newer version may have more keys in these, a system file may not.
class LayoutKeys(Layout, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one model is spread over devices."""


class SanityKeys(Sanity, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run's samples have to fulfil, whatever was accepted."""


class Entry(Flops, frozen=True, kw_only=True):
    """One entry of ``cases``: a case for each combination of listed values."""

    precision: Annotated[
        OneOrMore[Precision], doc("As in fp32. Each combination of listed values is a case.")
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
        text(f"^({TOPOLOGY}|{NO_REFERENCE})$", "a topology such as 1n8g, or none"),
        doc("The topology that speedups are taken over, or none."),
    ] = "1n1g"
    options: Annotated[SomeOf[Name], doc("What else changes the speed.")] = ()


class MetricEntry(Part, frozen=True, kw_only=True):
    """How a metric is found in the log, and judged; built-in ones have keys of the latter only."""

    record: Annotated[
        Expression | None,
        doc(
            "A regular expression, matched within single lines. The group value is the number; "
            "step, rank and unit may say what it is of. Any other group makes it a family."
        ),
    ] = None
    json: Annotated[
        Text | dict[str, Text] | None,
        doc("Where a probe's JSON has the number: a dotted path, or paths by group; * is any key."),
    ] = None
    csv: Annotated[
        Text | dict[str, Text] | None,
        doc("The column of a probe's CSV that has the number, or columns by group."),
    ] = None
    where: Annotated[
        dict[str, Scalar], doc("Values that the document or row must have, by key.")
    ] = {}
    unit: Annotated[Line | None, doc("The unit that the number is kept and shown in.")] = None
    printed_in: Annotated[
        Line | None,
        doc(
            "The unit that the log prints; default: unit. Multiples of B, J, W and s are known, "
            "and k, M, G before any unit."
        ),
    ] = None
    better: Annotated[
        Better | None, doc("The better direction. This, sanity or judged: false is required.")
    ] = None
    statistic: Annotated[
        Statistic | None, doc("What makes one number of all; default: median, with over: run last.")
    ] = None
    node: Annotated[WhichNode | None, doc("The nodes whose logs have it; default: log.node.")] = (
        None
    )
    over: Annotated[
        Over | None,
        doc("The part of the log that counts: the measured steps, or all of it; default: window."),
    ] = None
    tolerance_percent: Annotated[
        Percent | None, doc("How much worse the median may be; default: the system's.")
    ] = None
    tolerance_at_least: Annotated[
        Scalar | None, doc("A loss of so much passes, whatever its percentage: 2 s.")
    ] = None
    sanity: Annotated[
        Literal["finite", "falls"] | SanityKeys | None,
        doc("What each run must satisfy, whatever the baseline; default for loss: finite."),
    ] = None
    judged: Annotated[bool, doc("false: record and show it, without a test.")] = True


class SystemKeys(Flops, frozen=True, kw_only=True):
    """What a system file says, and its system keeps as it is."""

    framework: Annotated[Name, doc("First part of the case ids, as in pytorch.")]
    model: Annotated[Name, doc("Second part of the case ids, as in resnet50.")]
    repeats: Annotated[
        int,
        Meta(ge=1, le=1000),
        doc("Runs of a case, whose median counts. --dlperf-repeats overrides it."),
    ] = 5
    tolerance_percent: Annotated[
        Percent,
        doc(
            "How much worse than its baseline a metric may be. A metric's own tolerance wins, and "
            "a baseline's over that."
        ),
    ] = 5.0
    marks: Annotated[SomeOf[_Mark], doc("pytest markers of its tests, for -m.")] = ()
    needs: Annotated[
        _Probes,
        doc("Probes that run first on the hosts of a case. If one breaks, it is not started."),
    ] = ()
    companions: Annotated[
        _Probes, doc("Probes that run on the hosts of a case once it is red.")
    ] = ()
    resource: Annotated[Text | None, doc("What of its hosts a probe measures, as in network.")] = (
        None
    )


class SystemFile(SystemKeys, frozen=True, kw_only=True):
    """One trainer or probe: how it is started, what its logs look like, and its cases."""

    unit: Annotated[
        _Unit | None,
        doc("Unit of the throughput, as in images/s; tokens/s counts a sample's length."),
    ] = None
    log: Annotated[Log, doc("How its logs are named and read.")] = Log()
    window: Annotated[
        Window | None, doc("The steps of a run that are measured. A probe has none.")
    ] = None
    cases: Annotated[
        SomeOf[Entry], doc("What is measured: one case for each topology of each entry.")
    ]
    metrics: Annotated[
        dict[str, MetricEntry],
        doc("What is judged or recorded besides throughput and speedup, by name."),
    ] = {}
    launch: Annotated[
        Launch | None,
        doc("How to start the trainer. Without it, only existing logs can be judged."),
    ] = None
    extends: Annotated[
        Text | None,
        doc("The system that this one builds on: one that ships, or a file. Says what differs."),
    ] = None

"""A system file as a person writes it: its keys, with their meanings."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from pytest_dlperf.config.cases import Entry, Flops
from pytest_dlperf.config.launch_keys import Launch
from pytest_dlperf.config.metrics import MetricEntry
from pytest_dlperf.config.parts import (
    Expression,
    Line,
    Name,
    OneOrMore,
    Part,
    Percent,
    Positive,
    Scalar,
    SomeOf,
    Text,
    doc,
)
from pytest_dlperf.formats.log_format import Ranks
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import TIMING_GROUPS, Covers, RateScope, StepsIn

GROUPS = ("step", "epoch", "rank", *TIMING_GROUPS)
"""What a record may say, by name."""

_Group = Annotated[
    str, Meta(pattern=f"^({'|'.join(GROUPS)})$", title=f"a group of a record: {', '.join(GROUPS)}")
]
_Mark = Annotated[
    str,
    Meta(
        pattern=r"^(?!_)[A-Za-z0-9_]+$",
        title="a marker's name of letters, digits and underscores",
    ),
]
_LogName = Annotated[
    str,
    Meta(pattern=r"^[^./\x00-\x1f][^/\x00-\x1f]*$", title="the first part of a file name"),
]
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
        doc(
            "A regular expression for a step's record. Named groups, such as step and timestamp, "
            "say what it has."
        ),
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
        StepsIn,
        doc("What the step's number counts. Samples are divided by the global batch."),
    ] = StepsIn.STEPS
    ranks: Annotated[
        Ranks,
        doc(
            "Who prints into a log: one process, every rank of the node, one process of each node, "
            "or every rank of the run."
        ),
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


class WindowKeys(Window, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of a run that count: warm-up left out, then the measured ones."""


class Log(Part, frozen=True, kw_only=True):
    """How logs are named and read."""

    name: Annotated[
        _LogName | None,
        doc("First part of a log's file name; default for a probe: its framework."),
    ] = None
    format: Annotated[
        str | Format | None,
        doc("The name of a built-in format, or how a step's record looks."),
    ] = None
    node: Annotated[Literal["first", "last", "each"], doc("The nodes whose logs show steps.")] = (
        "first"
    )
    file: Annotated[
        Text | None,
        doc("A file that the trainer writes its steps into. Its lines are added to the log."),
    ] = None


class SystemFile(Flops, frozen=True, kw_only=True):
    """One trainer or probe: how it is started, what its logs look like, and its cases."""

    framework: Annotated[Name, doc("First part of the case ids, as in pytorch.")]
    model: Annotated[Name, doc("Second part of the case ids, as in resnet50.")]
    unit: Annotated[
        Line | None,
        doc(
            "Unit of the throughput, as in images/s. With tokens/s a sample counts as its tokens. "
            "A probe has none."
        ),
    ] = None
    log: Annotated[Log, doc("How its logs are named and read.")] = Log()
    window: Annotated[
        WindowKeys | None, doc("The steps of a run that are measured. A probe has none.")
    ] = None
    cases: Annotated[
        SomeOf[Entry], doc("What is measured: one case for each topology of each entry.")
    ]
    metrics: Annotated[
        dict[str, MetricEntry],
        doc("What is judged or recorded besides throughput and speedup, by name."),
    ] = {}
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
    launch: Annotated[
        Launch | None,
        doc("How to start the trainer. Without it, only existing logs can be judged."),
    ] = None
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
    extends: Annotated[
        Text | None,
        doc("The system that this one builds on: one that ships, or a file. Says what differs."),
    ] = None

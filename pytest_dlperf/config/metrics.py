"""The ``metrics`` of a system file: those beside throughput and speedup."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_dlperf.files.shapes import (
    ByKind,
    Choice,
    Key,
    MapOf,
    Number,
    Record,
    Scalar,
    Shape,
    Text,
    YesNo,
    one_of,
)
from pytest_dlperf.formats.declared import DeclaredMetric, Over, declared_metric, unit_factor
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.model.case import NAME_PATTERN, check_name
from pytest_dlperf.model.metric import (
    FIRST_STEP_TIME,
    MFU,
    PER_DEVICE,
    SHARED,
    SPEEDUP,
    STEP_TIMES,
    THROUGHPUT,
    Better,
    Metric,
    RuleName,
    Sanity,
    Source,
    Statistic,
    builtin_metrics,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.files.yamlfile import YamlValue

_AXES: Final = (
    "batch",
    "batch_per_device",
    "batch_per_replica",
    "case",
    "devices_per_node",
    "framework",
    "global_batch",
    "layout",
    "metric",
    "model",
    "nodes",
    "option",
    "options",
    "parallel",
    "precision",
    "reference",
    "reference_topology",
    "sequence_length",
    "system",
    "topology",
)
"""Axes by which tests are selected; a metric of that name could not be told from them."""

_TIMES: Final = (*STEP_TIMES, FIRST_STEP_TIME)
_TIME_UNIT: Final = "s"
_MEANINGS: Final = {
    THROUGHPUT: "Work per second over all devices.",
    SPEEDUP: "How many times the throughput of the reference topology is reached.",
    PER_DEVICE: "Work per second and device.",
    **dict.fromkeys(STEP_TIMES, "Time of single steps, of the slowest rank."),
    FIRST_STEP_TIME: "From the launch to the end of the first step.",
    MFU: "Model FLOPs utilisation: what the model needs, over the devices' peak.",
}


def unit_shape(example: str) -> Shape[str]:
    """Return the shape of a unit."""

    def parse(text: str) -> str:
        if not text.isprintable():
            raise ValueError(f"the unit {text!r} is not one line of plain text")
        return text

    return Text(f"a unit such as {example}").parsed(parse)


_JUDGING: Final = (
    Key(
        "tolerance_percent",
        Number(below=100, unit="percent"),
        "How much worse the median may be; default: the system's. A baseline's own tolerance wins.",
    ),
    Key("rule", one_of(RuleName), "The rule that decides; default: what the baseline allows."),
)
_TOLERANCE: Final = Key(
    "tolerance",
    Record(
        dict[str, Any],
        Key(
            "percent",
            Number(below=100, unit="percent"),
            "As tolerance_percent.",
        ),
        Key(
            "at_least",
            Scalar("a number with its unit, such as 2 s"),
            "A loss of so much passes, whatever its percentage: 2 s.",
        ),
    ),
    "The same for numbers near zero, instead of tolerance_percent.",
)
_AMOUNT: Final = re.compile(r"(?P<number>[0-9.]+(?:[eE][-+]?[0-9]+)?) *(?P<unit>.*)")
_JUDGED: Final = Key(
    "judged",
    YesNo(),
    "false: record and show it, without a test; default: true.",
    argument="is_judged",
)
_BOUND: Final = Number(any_sign=True)
_SANITY: Final[Shape[Sanity]] = ByKind(
    scalar=Choice(("finite", "falls"), otherwise="a mapping").parsed(
        lambda word: Sanity(falls=word == "falls")
    ),
    mapping=Record(
        Sanity,
        Key("finite", YesNo(), "No number is NaN or infinite; default: true."),
        Key(
            "falls",
            YesNo(),
            "The window's second half is lower than its first, by more than the scatter.",
        ),
        Key("below", _BOUND, "Each number of the window lies below."),
        Key("above", _BOUND, "Each number of the window lies above."),
    ),
)
_UNIT: Final = unit_shape("MB")
_DECLARED: Final = Record(
    dict[str, Any],
    Key(
        "record",
        Text("a regular expression"),
        "A regular expression, matched within single lines. The group value is the number; step, "
        "rank and unit may say what it is of. Any other group makes it a family.",
    ),
    Key(
        "json",
        ByKind(
            scalar=Text("a dotted path").parsed(lambda path: {"value": path}),
            mapping=MapOf(Text("a dotted path"), "a mapping of groups to paths"),
        ),
        "Where a JSON document of a probe has the number: a dotted path, or paths by group. * is "
        "each key.",
    ),
    Key(
        "csv",
        ByKind(
            scalar=Text("a column").parsed(lambda column: {"value": column}),
            mapping=MapOf(Text("a column"), "a mapping of groups to columns"),
        ),
        "The column of a probe's CSV that has the number, or columns by group.",
    ),
    Key(
        "where",
        MapOf(Scalar(), "a mapping of keys to values"),
        "Values that the document or row must have, by key.",
    ),
    Key("unit", _UNIT, "The unit that the number is kept and shown in."),
    Key(
        "printed_in",
        _UNIT,
        "The unit that the log prints; default: unit. Multiples of B, J, W and s are known, and "
        "k, M, G before any unit.",
    ),
    Key(
        "better", one_of(Better), "The better direction. This, sanity or judged: false is required."
    ),
    Key(
        "statistic",
        one_of(Statistic),
        "What makes one number of all steps, ranks and nodes; default: median, with over: run "
        "last.",
    ),
    Key("node", one_of(WhichNode), "The nodes whose logs have it; default: log.node."),
    Key(
        "over",
        one_of(Over),
        "The part of the log that counts: the measured steps, or all of it; default: window.",
    ),
    *_JUDGING,
    _TOLERANCE,
    Key(
        "sanity",
        _SANITY,
        "What each run must satisfy, whatever the baseline; default for loss: finite.",
    ),
    _JUDGED,
)


def _checked(entries: dict[str, dict[str, Any]], place: YamlValue) -> dict[str, dict[str, Any]]:
    """Check and build the metrics that a log prints."""
    for name, entry in entries.items():
        _check_metric(name, entry, place)
    return entries


def _check_metric(name: str, entry: dict[str, Any], place: YamlValue) -> None:
    is_builtin = name in _MEANINGS
    try:
        if "tolerance" in entry:
            unit = _TIME_UNIT if is_builtin else entry.get("unit", "")
            entry.update(_tolerances(entry.pop("tolerance"), unit, entry))
        if not is_builtin:
            _check_entry(name, entry)
            entry["declared"] = _declared(name, entry)
    except ValueError as error:
        place.at(name).fault(str(error))


def _tolerances(
    given: Mapping[str, Any], unit: str, entry: Mapping[str, Any]
) -> Iterator[tuple[str, float]]:
    if "tolerance_percent" in entry:
        raise ValueError("'tolerance' and 'tolerance_percent' say the same; give one of them")
    if "percent" in given:
        yield "tolerance_percent", given["percent"]
    if "at_least" in given:
        yield "tolerance_at_least", _amount(given["at_least"], unit)


def _amount(text: str, unit: str) -> float:
    """Read a number with its unit, in ``unit``."""
    found = _AMOUNT.fullmatch(text.strip())
    try:
        number = float(found["number"]) if found else 0.0
    except ValueError:
        number = 0.0
    if found is None or not 0 < number < math.inf:
        raise ValueError(f"at_least: {text!r} is not a number above 0 with its unit, such as 2 s")
    return number * unit_factor(found["unit"] or unit, unit)


def _check_entry(name: str, entry: dict[str, Any]) -> None:
    check_name("metric", name)
    if name in _AXES:
        raise ValueError(
            f"{name!r} is an axis by which cases are selected; give the metric another name, such "
            f"as 'measured_{name}'"
        )
    if name in SHARED:
        raise ValueError(
            f"{name!r} is a word of the baselines' files; give the metric another name, such as "
            f"'measured_{name}'"
        )
    if name == "loss":
        entry.setdefault("sanity", Sanity())
    if not (entry.keys() & {"better", "sanity"} or entry.get("is_judged") is False):
        raise ValueError(
            "nothing says how it is judged; give 'better' (higher or lower) to hold it against "
            "a baseline, 'sanity' to check each run, or 'judged: false' to record it only"
        )
    if "better" not in entry and entry.keys() & {
        "tolerance_percent",
        "tolerance_at_least",
        "rule",
    }:
        raise ValueError(
            "a tolerance or a rule needs 'better' (higher or lower): without it, no baseline is "
            "held"
        )


def _declared(name: str, entry: Mapping[str, Any]) -> DeclaredMetric:
    keys = ("record", "json", "csv", "where", "printed_in", "node", "over")
    given = {key: entry[key] for key in keys if key in entry}
    whole_run = entry.get("over") is Over.RUN
    metric = Metric(
        name=name,
        unit=entry.get("unit", ""),
        better=entry.get("better"),
        source=Source.LOG,
        statistic=entry.get("statistic"),
        **{
            key: entry[key]
            for key in ("tolerance_percent", "tolerance_at_least", "rule", "sanity", "is_judged")
            if key in entry
        },
    )
    declared = declared_metric(metric, **given)
    if metric.statistic is None and not (declared.metric.is_family and whole_run):
        usual = Statistic.LAST if whole_run else Statistic.MEDIAN
        declared = replace(declared, metric=replace(declared.metric, statistic=usual))
    return declared


def _of_probe(entry: Mapping[str, Any]) -> DeclaredMetric:
    """Return a metric for which all of the log counts."""
    return _declared(entry["declared"].metric.name, {**entry, "over": Over.RUN})


METRICS: Final[Shape[dict[str, dict[str, Any]]]] = Record(
    dict[str, Any],
    *(
        Key(
            name,
            Record(
                dict[str, Any],
                *_JUDGING,
                *((_TOLERANCE,) if name in _TIMES else ()),
                _JUDGED,
            ),
            meaning,
        )
        for name, meaning in _MEANINGS.items()
    ),
    allowed="a mapping of names to metrics",
    others=_DECLARED,
    other_names=NAME_PATTERN,
).placed(_checked)


def check_probe_metrics(entries: Mapping[str, Mapping[str, Any]], root: YamlValue) -> None:
    """Check what a probe cannot have, which has no steps: built-in metrics, and parts of a run."""
    if not entries:
        root.fault("a probe has metrics; name the numbers that it prints under 'metrics'")
    for name, entry in entries.items():
        place = root.at(f"metrics.{name}")
        declared, sanity = entry.get("declared"), entry.get("sanity")
        if name in _MEANINGS:
            place.fault(f"{name} is of trainings; give the number of a probe a name of its own")
        elif entry.get("over") is Over.WINDOW or (declared is not None and declared.has_step):
            place.fault("a probe has no steps; leave out 'over: window' and the group 'step'")
        elif sanity is not None and sanity.falls:
            place.fault("a probe has no steps, over which a number could fall")


def metrics_of(
    unit: str | None,
    entries: Mapping[str, Mapping[str, Any]],
    *,
    is_launched: bool,
    has_flops: bool,
    log_node: WhichNode,
) -> tuple[tuple[Metric, ...], tuple[DeclaredMetric, ...]]:
    """Return the metrics of a system, throughput and speedup first, and those of its logs.

    Without the ``unit`` of a throughput it is a probe, which has those of its logs only, and all of
    a log counts.

    Built-in ones are judged where ``entries`` name them, and else recorded as far as they cost
    nothing: step times need to be named. What the log prints is looked for where the steps are,
    ``log_node``, unless it says otherwise.
    """
    metrics = []
    for name, metric in builtin_metrics(unit).items() if unit is not None else ():
        entry = entries.get(name)
        if entry is not None:
            metrics.append(replace(metric, **{"is_judged": True, **entry}))
        elif name not in STEP_TIMES and (
            {FIRST_STEP_TIME: is_launched, MFU: has_flops}.get(name, True)
        ):
            metrics.append(metric)
    declared = tuple(
        entry["declared"] if "node" in entry else replace(entry["declared"], node=log_node)
        for entry in entries.values()
        if "declared" in entry
    )
    if unit is None:
        declared = tuple(
            replace(_of_probe(entries[each.metric.name]), node=each.node) for each in declared
        )
    return (*metrics, *(each.metric for each in declared)), declared

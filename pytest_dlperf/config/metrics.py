"""The ``metrics`` of a system file: those beside throughput and speedup."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec.structs import replace

from pytest_dlperf.config.parts import (
    Expression,
    Line,
    Part,
    Percent,
    Scalar,
    Text,
    doc,
    of_model,
)
from pytest_dlperf.files.mistakes import unknown_key
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.formats.declared import DeclaredMetric, Over, declared_metric, unit_factor
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.model.builtin import BUILTIN, Needs
from pytest_dlperf.model.case import check_name
from pytest_dlperf.model.metric import (
    SHARED,
    Better,
    Metric,
    Sanity,
    Source,
    Statistic,
)

_AXES: Final = (
    *("batch", "batch_per_device", "batch_per_replica", "case", "devices_per_node", "framework"),
    *("global_batch", "layout", "metric", "model", "nodes", "option", "options", "parallel"),
    *("precision", "reference", "reference_topology", "sequence_length", "system", "topology"),
)
"""Axes by which tests are selected; a metric of that name could not be told from them."""

_AMOUNT: Final = re.compile(r"(?P<number>[0-9.]+(?:[eE][-+]?[0-9]+)?) *(?P<unit>.*)")


class SanityKeys(Sanity, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run's samples have to fulfil, whatever was accepted."""


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
        doc(
            "Where a JSON document of a probe has the number: a dotted path, or paths by group. * "
            "is each key."
        ),
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
        Better | None,
        doc("The better direction. This, sanity or judged: false is required."),
    ] = None
    statistic: Annotated[
        Statistic | None,
        doc(
            "What makes one number of all steps, ranks and nodes; default: median, with over: run "
            "last."
        ),
    ] = None
    node: Annotated[WhichNode | None, doc("The nodes whose logs have it; default: log.node.")] = (
        None
    )
    over: Annotated[
        Over | None,
        doc("The part of the log that counts: the measured steps, or all of it; default: window."),
    ] = None
    tolerance_percent: Annotated[
        Percent | None,
        doc(
            "How much worse the median may be; default: the system's. A baseline's own tolerance "
            "wins."
        ),
    ] = None
    tolerance_at_least: Annotated[
        Scalar | None, doc("A loss of so much passes, whatever its percentage: 2 s.")
    ] = None
    sanity: Annotated[
        Literal["finite", "falls"] | SanityKeys | None,
        doc("What each run must satisfy, whatever the baseline; default for loss: finite."),
    ] = None
    judged: Annotated[bool, doc("false: record and show it, without a test.")] = True

    def tolerances(self, unit: str) -> dict[str, float]:
        """Return how much worse it may be, as a metric says it, in its unit.

        Raises:
            ValueError: The unit is unknown, or the amount is no number.
        """
        tolerances = {}
        if self.tolerance_percent is not None:
            tolerances["tolerance_percent"] = self.tolerance_percent
        if self.tolerance_at_least is not None:
            tolerances["tolerance_at_least"] = _amount(self.tolerance_at_least, unit)
        return tolerances


def declared_metrics(
    file: YamlFile,
    entries: Mapping[str, MetricEntry],
    *,
    is_probe: bool,
    unit: str,
    node: WhichNode,
) -> dict[str, DeclaredMetric]:
    """Make the metrics that a log prints, by name, but for those whose mistakes are reported.

    ``node`` is where they are looked for unless they say otherwise, ``unit`` that of the
    throughput. Of a probe, which has no steps, all of a log counts.
    """
    if is_probe and not entries:
        file.error((), "a probe has metrics; name the numbers that it prints under 'metrics'")
    metrics = {}
    for name, entry in entries.items():
        try:
            if name in BUILTIN:
                _check_builtin(file, name, is_probe=is_probe)
                entry.tolerances(BUILTIN[name].metric(unit).unit)
                continue
            _check_entry(name, entry, is_probe=is_probe)
            over = Over.RUN if is_probe else entry.over or Over.WINDOW
            metrics[name] = _declared(name, entry, over, node)
        except ValueError as error:
            file.error(("metrics", name), str(error))
    for name, metric in metrics.items():
        if is_probe and metric.has_step:
            file.error(("metrics", name), _NO_STEPS)
    return metrics


_NO_STEPS: Final = "a probe has no steps; leave out 'over: window' and the group 'step'"


def _check_builtin(file: YamlFile, name: str, *, is_probe: bool) -> None:
    if is_probe:
        raise ValueError(f"{name} is of trainings; give the number of a probe a name of its own")
    keys = ["tolerance_percent", "tolerance_at_least", "judged"]
    for key in file.value["metrics"][name]:
        if key not in keys:
            file.error(("metrics", name, key), unknown_key(key, keys))


def _check_entry(name: str, entry: MetricEntry, *, is_probe: bool) -> None:
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
    if entry.better is None and entry.judged and _sanity(name, entry) is None:
        raise ValueError(
            "nothing says how it is judged; give 'better' (higher or lower) to hold it against "
            "a baseline, 'sanity' to check each run, or 'judged: false' to record it only"
        )
    if entry.better is None and entry.tolerances(entry.unit or ""):
        raise ValueError(
            "a tolerance needs 'better' (higher or lower): without it, no baseline is held"
        )
    if is_probe and entry.over is Over.WINDOW:
        raise ValueError(_NO_STEPS)
    if is_probe and (sanity := _sanity(name, entry)) and sanity.falls:
        raise ValueError("a probe has no steps, over which a number could fall")
    if not is_probe and (entry.json or entry.csv):
        raise ValueError("'json' and 'csv' are of probes; a training's number is found by 'record'")


def _sanity(name: str, entry: MetricEntry) -> Sanity | None:
    sanity = entry.sanity
    if isinstance(sanity, str):
        return Sanity(falls=sanity == "falls")
    if sanity is None:
        return Sanity() if name == "loss" else None
    return of_model(Sanity, sanity)


def _amount(text: str, unit: str) -> float:
    """Read a number with its unit, in ``unit``."""
    match = _AMOUNT.fullmatch(text.strip())
    try:
        number = float(match["number"]) if match else 0.0
    except ValueError:
        number = 0.0
    if match is None or not 0 < number < math.inf:
        raise ValueError(
            f"tolerance_at_least: {text!r} is not a number above 0 with its unit, such as 2 s"
        )
    return number * unit_factor(match["unit"] or unit, unit)


def _declared(name: str, entry: MetricEntry, over: Over, node: WhichNode) -> DeclaredMetric:
    whole_run = over is Over.RUN
    metric = Metric(
        name=name,
        unit=entry.unit or "",
        better=entry.better,
        source=Source.LOG,
        statistic=entry.statistic,
        sanity=_sanity(name, entry),
        is_judged=entry.judged,
    )
    metric = replace(metric, **entry.tolerances(entry.unit or ""))
    declared = declared_metric(
        metric,
        record=entry.record,
        json=_by_group(entry.json),
        csv=_by_group(entry.csv),
        where=entry.where,
        printed_in=entry.printed_in,
        node=entry.node or node,
        over=over,
    )
    if metric.statistic is None and not (declared.metric.is_family and whole_run):
        usual = Statistic.LAST if whole_run else Statistic.MEDIAN
        declared = replace(declared, metric=replace(declared.metric, statistic=usual))
    return declared


def _by_group(paths: str | dict[str, str] | None) -> dict[str, str] | None:
    return {"value": paths} if isinstance(paths, str) else paths


def metrics_of(
    unit: str, entries: Mapping[str, MetricEntry], available: Collection[Needs]
) -> Iterator[Metric]:
    """Yield the built-in metrics of a training, throughput and speedup first.

    They are judged where ``entries`` name them, and else recorded if what they need is
    ``available``.
    """
    for name, row in BUILTIN.items():
        entry, metric = entries.get(name), row.metric(unit)
        if entry is not None:
            changes: dict[str, Any] = {**entry.tolerances(metric.unit), "is_judged": entry.judged}
            yield replace(metric, **changes)
        elif row.needs is Needs.NOTHING or row.needs in available:
            yield metric

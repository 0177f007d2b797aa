"""The metrics of a system: built-in ones, and those that its file declares."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any, Final

from msgspec.structs import asdict, replace

from pytest_dlperf.config.system_file import MetricEntry, SystemFile
from pytest_dlperf.files.mistakes import unknown_key
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.formats.declared import DeclaredMetric, Over, declared_metric, unit_factor
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.model.builtin import BUILTIN, Needs
from pytest_dlperf.model.case import check_name
from pytest_dlperf.model.metric import SHARED, Metric, Sanity, Source, Statistic

_TAKEN: Final = (
    *("batch", "batch_per_device", "batch_per_replica", "case", "devices_per_node", "framework"),
    *("global_batch", "layout", "metric", "model", "nodes", "option", "options", "parallel"),
    *("precision", "reference", "reference_topology", "sequence_length", "system", "topology"),
    *SHARED,
)
"""Words by which tests are selected, and of baselines: a metric could not be told from them."""
_OF_BUILTIN: Final = ("tolerance_percent", "tolerance_at_least", "judged")
_AMOUNT: Final = re.compile(r"(?P<number>[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?) *(?P<unit>.*)")
_NO_STEPS: Final = "a probe has no steps; leave out 'over: window' and the group 'step'"


def system_metrics(
    file: YamlFile, keys: SystemFile, available: Collection[Needs]
) -> tuple[dict[str, Metric], dict[str, DeclaredMetric]]:
    """Make the built-in metrics of a system and those that its logs print, by name.

    Built-in ones are judged where the file names them, and else recorded if what they need is
    ``available``. Mistakes are reported.
    """
    is_probe = keys.unit is None
    if is_probe and not keys.metrics:
        file.error((), "a probe has metrics; name the numbers that it prints under 'metrics'")
    builtin = {
        name: row.metric(keys.unit or "")
        for name, row in BUILTIN.items()
        if not is_probe and (name in keys.metrics or row.needs in available)
    }
    declared = {}
    for name, entry in keys.metrics.items():
        try:
            if name not in BUILTIN:
                declared[name] = _declared(name, entry, keys.log.node, is_probe=is_probe)
                continue
            for key in file.value["metrics"][name]:
                if key not in _OF_BUILTIN and not is_probe:
                    file.error(("metrics", name, key), unknown_key(key, _OF_BUILTIN))
            builtin[name] = _judged(name, entry, builtin.get(name), available)
        except ValueError as error:
            file.error(("metrics", name), str(error))
    return builtin, declared


def _judged(
    name: str, entry: MetricEntry, metric: Metric | None, available: Collection[Needs]
) -> Metric:
    if metric is None:
        raise ValueError(f"{name} is of trainings; give the number of a probe a name of its own")
    if BUILTIN[name].needs is Needs.FLOPS and Needs.FLOPS not in available:
        raise ValueError("needs flops_per_token or flops_per_sample, of the system or of a case")
    return replace(metric, is_judged=entry.judged, **_tolerances(entry, metric.unit))


def _declared(name: str, entry: MetricEntry, node: str, *, is_probe: bool) -> DeclaredMetric:
    check_name("metric", name)
    over = Over.RUN if is_probe else entry.over or Over.WINDOW
    sanity: Sanity | None = Sanity() if name == "loss" else None
    if entry.sanity is not None:
        sanity = (
            Sanity(falls=entry.sanity == "falls")
            if isinstance(entry.sanity, str)
            else Sanity(**asdict(entry.sanity))
        )
    tolerances = _tolerances(entry, entry.unit or "")
    mistakes = {
        f"{name!r} is a word of cases and baselines; give the metric another name, such as "
        f"'measured_{name}'": name in _TAKEN,
        "nothing says how it is judged; give 'better' (higher or lower) to hold it against a "
        "baseline, 'sanity' to check each run, or 'judged: false' to record it only": (
            entry.better is None and entry.judged and sanity is None
        ),
        "a tolerance needs 'better' (higher or lower): without it, no baseline is held": (
            entry.better is None and tolerances
        ),
        _NO_STEPS: is_probe and entry.over is Over.WINDOW,
        "a probe has no steps, over which a number could fall": is_probe
        and sanity
        and sanity.falls,
        "'json' and 'csv' are of probes; a training's number is found by 'record'": (
            not is_probe and (entry.json or entry.csv)
        ),
    }
    if mistake := next((message for message, is_so in mistakes.items() if is_so), None):
        raise ValueError(mistake)
    metric = Metric(
        name=name,
        unit=entry.unit or "",
        better=entry.better,
        source=Source.LOG,
        statistic=entry.statistic,
        sanity=sanity,
        is_judged=entry.judged,
        **tolerances,
    )
    declared = declared_metric(
        metric,
        record=entry.record,
        json={"value": entry.json} if isinstance(entry.json, str) else entry.json,
        csv={"value": entry.csv} if isinstance(entry.csv, str) else entry.csv,
        where=entry.where,
        printed_in=entry.printed_in,
        node=entry.node or WhichNode(node),
        over=over,
    )
    if is_probe and declared.has_step:
        raise ValueError(_NO_STEPS)
    if metric.statistic is None and not (declared.metric.is_family and over is Over.RUN):
        usual = Statistic.LAST if over is Over.RUN else Statistic.MEDIAN
        declared = replace(declared, metric=replace(declared.metric, statistic=usual))
    return declared


def _tolerances(entry: MetricEntry, unit: str) -> dict[str, Any]:
    """Return how much worse it may be, the amount as a number of the metric's unit."""
    tolerances: dict[str, Any] = {}
    if entry.tolerance_percent is not None:
        tolerances["tolerance_percent"] = entry.tolerance_percent
    if (amount := entry.tolerance_at_least) is not None:
        match = _AMOUNT.fullmatch(amount.strip())
        number = float(match["number"]) if match else 0.0
        if match is None or not 0 < number < math.inf:
            raise ValueError(
                f"tolerance_at_least: {amount!r} is not a number above 0 with its unit, such as 2 s"
            )
        tolerances["tolerance_at_least"] = number * unit_factor(match["unit"] or unit, unit)
    return tolerances

"""The results file (``--dlperf-json``): its types, its JSON Schema, and writing it.

The types are the form of the file: ``reading`` decodes by them, ``json_schema`` describes them with
their docstrings.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypedDict,
    cast,
    get_args,
    get_type_hints,
)  # fmt: skip

import msgspec
from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import asdict

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.judgement import Explanation, JudgementDetails, Verdict
from pytest_dlperf.model.measurement import Count, Estimator, Fingerprint, Run
from pytest_dlperf.model.metric import Better, Metric
from pytest_dlperf.model.results import Accepted, BaselineChange, IgnoredLog, MetricResult

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.results import CaseResult, Results

SCHEMA: Final = 2
MAX_METRICS: Final = 1000
"""Metrics of a system: shipped ones have a dozen."""

Name = Annotated[str, Meta(min_length=1)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Environment(TypedDict, total=False):
    """The machine that pytest ran on. Training may have run on others: see ``fingerprint``."""

    host: str | None
    """Its name."""
    platform: str | None
    """Its operating system."""
    processors: int | None
    """Its logical processors."""
    load_average: list[float] | None
    """Runnable processes, averaged over 1, 5 and 15 minutes."""
    python: str | None
    """The version of pytest's Python."""
    packages: Mapping[str, str]
    """Versions of packages in pytest's Python, by name."""
    commit: str
    """The commit of the folder of system files, with ``+changes`` where some files differ. Only of
    what was launched, and where Git knows one."""
    commit_url: str
    """The address of the commit's page, where the checkout's remote is a known forge."""
    ci_run: str
    """The address of the CI's run, where the CI gives it."""


class MeasurementEntry(Struct, frozen=True, kw_only=True):
    """All runs of a case, or of one arm of it."""

    case_id: str
    """The case."""
    estimator: Estimator
    """How throughput is taken from a log."""
    metrics: tuple[str, ...]
    """Names of what its runs may have, as its system defines them."""
    runs: tuple[Run, ...]
    """The runs in their order."""
    fingerprint: Fingerprint | None
    """What it was measured on, where that is known."""
    available_runs: Count | None
    """How many runs were available; null for as many as wanted."""
    logs_digest: str | None
    """SHA-256 of the logs that it was read from; null where it was launched."""


class InterleavedEntry(Struct, frozen=True, kw_only=True):
    """Runs of what is tested and of the accepted software, in turn on the same hosts."""

    candidate: MeasurementEntry
    """What is tested."""
    control: MeasurementEntry
    """The accepted software."""


class MetricNumbers(Struct, frozen=True, kw_only=True):
    """What was measured and judged of a metric, by the names that every report uses."""

    unit: str
    """As in its definition, like ``better``."""
    better: Better | None
    """Whether more or less is better; null where the metric is held against no baseline."""
    median: float | None
    """Median over the runs that count: what is judged. Of a ratio, that of two medians. A case with
    a broken run has numbers, but was not measured whole."""
    mean: float | None
    """Mean over the same runs."""
    spread: Annotated[float, Meta(ge=0)] | None
    """Coefficient of variation between the runs, rounded to 3 decimals; null below two runs."""
    accepted: float | None
    """The number that a person agreed to; null where there is none, or none that the case could be
    held against: the reason says why."""
    reference: float | None
    """What tonight was held against: the accepted number, or the last accepted sessions pooled."""
    difference_percent: float | None
    """How far tonight lies above the reference, as the rule saw it; negative: below. Which of them
    is worse says ``better``."""
    verdict: Verdict | None
    """What the gate says; null where no test of the metric has finished, or none judges it."""
    reason: str | None
    """What led to the verdict, in words."""
    efficiency_percent: float | None
    """Of a ratio, its part of the ideal: the devices over those of the reference topology."""


class MetricEntry(MetricNumbers, frozen=True, kw_only=True):
    """One metric of one case."""

    baseline: Accepted | None
    """Where the accepted number comes from."""
    gate: JudgementDetails | None
    """How the verdict came about."""
    explanation: Explanation | None
    """Since when, and what differs; null where the metric simply passed."""


class Batch(Struct, frozen=True, kw_only=True):
    """Samples of one step."""

    per_replica: int
    """Of one data-parallel replica: of one device, unless the model is spread over several."""
    global_: int = field(name="global")
    """Of all replicas together."""


class CaseEntry(Struct, frozen=True, kw_only=True):
    """One case: what was run, what came out, what it was held against."""

    id: str
    """``<framework>-<model>-<precision>-(b|gb)<batch>[-s<sequence length>][-<layout>]
    [-<option>[+<option>…]]-<N>n<D>g``, of a probe
    ``<framework>-<model>[-<value of an axis>…]-<N>n<D>g``"""
    system: str
    """``<framework>-<model>``"""
    framework: str
    """The framework."""
    model: str
    """The model."""
    precision: str | None
    """The precision of a training, such as ``fp32``; null for a probe."""
    axes: Mapping[str, str]
    """What the cases of a probe differ by; empty for a training."""
    sequence_length: int | None
    """Tokens of a sample; null where the case does not say."""
    parallel: Mapping[str, int]
    """How one model is spread over devices: tp, pp, cp, ep; ones are left out."""
    options: tuple[str, ...]
    """What else changes the speed (xla, dali), sorted."""
    topology: str
    """``<N>n<D>g``: nodes, and devices per node."""
    nodes: int
    """Nodes that train together."""
    devices_per_node: int
    """Devices of each node."""
    batch: Batch | None
    """Samples of one step; null for a probe, which has none."""
    reference_topology: str | None
    """What the speedup is taken over; null where there is none."""
    runs: tuple[Run, ...]
    """The runs in their order; empty where the case was not measured."""
    metrics: Mapping[str, MetricEntry]
    """What came out, by the metric's name; each name is defined with the system."""
    fingerprint: Fingerprint | None
    """What the case was measured on; null where that is unknown: logs that exist may be of any
    machine."""
    available_runs: Count | None
    """How many runs were available; null for as many as wanted."""
    logs_digest: str | None
    """SHA-256 of the logs that it was read from; null where it was launched."""
    whole: bool
    """False where a test of the case was lost with its worker: its verdicts are not all."""
    unfinished: tuple[str, ...]
    """Metrics whose test was selected and never finished."""
    interleaved: InterleavedEntry | None
    """Runs beside the accepted software; null where there were none."""


class ChangeEntry(BaselineChange, frozen=True, kw_only=True):
    """One number that the session accepted."""

    difference_percent: float | None
    """How far the new number lies above the old one."""


class ResultsFile(Struct, frozen=True, kw_only=True):
    """What ``--dlperf-json`` writes.

    A metric's name is data: numbers stand under it, in the unit that its definition says. A number
    that is not there is null. Every field is in every file, and newer versions may add others
    anywhere.
    """

    schema: Literal[2]
    """The number of this form."""
    session: Name
    """An id that no other session has."""
    cluster: Name
    """The cluster whose baselines were compared with."""
    estimator: Estimator
    """How throughput is taken from a log."""
    started: Time
    """When the session began: ISO 8601 with its zone."""
    ended: Time | None
    """When it ended, likewise; null where that is unknown."""
    interrupted: bool
    """Whether it was cut short: by Ctrl-C, or by an error of pytest."""
    strict: bool
    """Whether ``skipped`` and ``environment_shift`` failed their tests (``--dlperf-strict``)."""
    environment: Environment
    """The machine that pytest ran on."""
    metrics: Mapping[str, Annotated[tuple[Metric, ...], Meta(max_length=MAX_METRICS)]]
    """What each system measures, by the system: its metrics, the throughput first."""
    cases: tuple[CaseEntry, ...]
    """The cases that a test was selected of, each once."""
    unfit_hosts: Mapping[str, tuple[str, ...]]
    """Faults of hosts, by host."""
    ignored_logs: tuple[IgnoredLog, ...]
    """Logs that were found but belong to no run."""
    baseline_changes: tuple[ChangeEntry, ...]
    """Numbers that the session accepted."""
    reference_measurements: tuple[MeasurementEntry, ...]
    """What speedups were taken over where no test of that case was selected."""


# ----------------------------------------------------------------------------- the schema


def json_schema() -> dict[str, Any]:
    """Describe the results file as a JSON Schema (2020-12), its fields by their docstrings."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Results of a session (pytest-dlperf), schema {SCHEMA}",
        **msgspec.json.schema(ResultsFile),
    }
    for definition in schema["$defs"].values():
        definition["description"] = _in_json(definition["description"])
    for name, kind in _classes(ResultsFile, {}).items():
        for field_name, text in _field_docstrings(kind).items():
            definition = schema["$defs"][name]["properties"][field_name.rstrip("_")]
            definition["description"] = _in_json(text)
    return schema


def _in_json(docstring: str) -> str:
    """Word a docstring for readers of JSON, on one line."""
    return " ".join(docstring.replace("``None``", "null").replace("``", "`").split())


def _classes(kind: Any, known: dict[str, type]) -> dict[str, type]:
    """Collect the classes with fields that a type consists of, by name."""
    for part in get_args(kind):
        _classes(part, known)
    if isinstance(kind, type) and "__annotations__" in vars(kind) and kind.__name__ not in known:
        known[kind.__name__] = kind
        for hint in get_type_hints(kind, include_extras=True).values():
            _classes(hint, known)
    return known


def _field_docstrings(kind: type) -> dict[str, str]:
    """Read the docstrings that stand below the fields of a class and its bases."""
    found = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("pytest_dlperf."):
            continue
        nodes = ast.walk(ast.parse(inspect.getsource(base)))
        body = next(node.body for node in nodes if isinstance(node, ast.ClassDef))
        for line, below in pairwise(body):
            match line, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = text
    return found


# -------------------------------------------------------------------------------- writing


def write_json(file: Path, results: Results) -> None:
    """Write the results file of a session."""
    write_whole(file, to_json(results))


def to_json(results: Results) -> str:
    """Turn results into the text of a results file."""
    # Not msgspec's encoder: it refuses half a pair of surrogates, which logs may hold.
    return json.dumps(to_builtins(results_file(results)), indent=2, allow_nan=False) + "\n"


def metric_entry(found: MetricResult) -> dict[str, Any]:
    """Return what was measured and judged of a metric, by the names that every report uses."""
    entry: dict[str, Any] = to_builtins(_numbers(found))
    return entry


def results_file(results: Results) -> ResultsFile:
    """Arrange a session's results as they are written."""
    return ResultsFile(
        schema=SCHEMA,
        session=results.session,
        cluster=results.cluster,
        estimator=results.estimator,
        started=results.started,
        ended=results.ended,
        interrupted=results.interrupted,
        strict=results.strict,
        environment=cast("Environment", results.environment),
        metrics=results.metrics,
        cases=tuple(_case(result, results.metrics) for result in results.cases),
        unfit_hosts=results.unfit_hosts,
        ignored_logs=results.ignored_logs,
        baseline_changes=tuple(
            ChangeEntry(**asdict(change), difference_percent=change.difference_percent)
            for change in results.baseline_changes
        ),
        reference_measurements=tuple(map(_measurement, results.reference_measurements)),
    )


def _measurement(measured: Measurement) -> MeasurementEntry:
    parts = {part: it for part, it in asdict(measured).items() if part != "checkouts"}
    return MeasurementEntry(**{**parts, "metrics": tuple(one.name for one in measured.metrics)})


def _case(result: CaseResult, systems: Mapping[str, tuple[Metric, ...]]) -> CaseEntry:
    case, measured, turns = result.case, result.measurement, result.interleaved
    return CaseEntry(
        id=case.id,
        system=case.system,
        framework=case.framework,
        model=case.model,
        precision=case.precision or None,
        axes=case.free_axes,
        sequence_length=case.sequence_length,
        parallel=case.layout.ways,
        options=case.options,
        topology=str(case.topology),
        nodes=case.topology.nodes,
        devices_per_node=case.topology.devices_per_node,
        batch=Batch(per_replica=case.batch_per_replica, global_=case.global_batch)
        if case.work
        else None,
        reference_topology=str(case.reference_topology) if case.reference_topology else None,
        runs=measured.runs if measured else (),
        metrics={name: _metric(one) for name, one in _metrics(result, systems).items()},
        fingerprint=measured.fingerprint if measured else None,
        available_runs=measured.available_runs if measured else None,
        logs_digest=measured.logs_digest if measured else None,
        whole=result.is_whole,
        unfinished=result.unfinished,
        interleaved=InterleavedEntry(
            candidate=_measurement(turns.candidate), control=_measurement(turns.control)
        )
        if turns
        else None,
    )


def _metrics(
    result: CaseResult, systems: Mapping[str, tuple[Metric, ...]]
) -> Mapping[str, MetricResult]:
    """Add to the known metrics what else the system measures, where nothing ran."""
    known = result.metrics()
    if result.measurement is not None:
        return known
    others = {
        metric.name: MetricResult(metric=metric, accepted=result.accepted.get(metric.name))
        for metric in systems.get(result.case.system, ())
        if metric.ratio_of is None or result.case.is_scaled
    }
    return {**others, **known}


def _metric(found: MetricResult) -> MetricEntry:
    judgement = found.judgement
    return MetricEntry(
        **asdict(_numbers(found)),
        baseline=found.accepted,
        gate=_details(judgement) if judgement else None,
        explanation=found.explanation,
    )


def _details(judgement: Judgement) -> JudgementDetails:
    names = JudgementDetails.__struct_fields__
    return JudgementDetails(**{name: getattr(judgement, name) for name in names})


def _numbers(found: MetricResult) -> MetricNumbers:
    judgement = found.judgement
    return MetricNumbers(
        unit=found.metric.unit,
        better=found.metric.better,
        median=_finite(found.median),
        mean=_finite(found.mean),
        spread=_finite(None if found.spread is None else round(found.spread, 3)),
        accepted=found.accepted.number if found.accepted else None,
        reference=found.reference,
        difference_percent=judgement.difference_percent if judgement else None,
        verdict=judgement.verdict if judgement else None,
        reason=judgement.reason if judgement else None,
        efficiency_percent=found.efficiency_percent,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None

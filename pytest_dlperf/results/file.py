"""The results file (``--dlperf-json``): the model's own values, and what is derived from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, convert, field, to_builtins
from msgspec.structs import asdict

from pytest_dlperf.files.mistakes import documented_schema_of
from pytest_dlperf.files.writing import open_regular, write_whole
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better, Metric
from pytest_dlperf.model.results import CaseResult, MetricResult, Results, parse_time

T = TypeVar("T")

SCHEMA: Final = 3


class ResultsFileError(UsageError):
    """A file is not a results file of this schema; the message names file and place."""


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
    """What it was held against: the accepted number, or the last accepted sessions pooled."""
    difference_percent: float | None
    """How far it lies above the reference, as the rule saw it; negative: below. Which of them
    is worse says ``better``."""
    verdict: Verdict | None
    """What the gate says; null where no test of the metric has finished, or none judges it."""
    reason: str | None
    """What led to the verdict, in words."""
    efficiency_percent: float | None
    """Of a ratio, its part of the ideal: the devices over those of the reference topology."""


class Batch(Struct, frozen=True, kw_only=True):
    """Samples of one step."""

    per_replica: int
    """Of one data-parallel replica: of one device, unless the model is spread over several."""
    global_: int = field(name="global")
    """Of all replicas together."""


class CaseEntry(CaseResult, frozen=True, kw_only=True):
    """One case: what is known of it, then what is derived from that."""

    id: str
    system: str
    """``<framework>-<model>``"""
    framework: str
    model: str
    precision: str | None
    """The precision of a training, such as ``fp32``; null for a probe."""
    batch: Batch | None
    """Samples of one step; null for a probe, which has none."""
    topology: str
    """``<N>n<D>g``: nodes, and devices per node."""
    numbers: Mapping[str, MetricNumbers] = field(name="metrics")
    """What came out, by the metric's name; each name is defined with the system."""


class ResultsFile(Results, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """What ``--dlperf-json`` writes.

    A metric's name is data: numbers stand under it, in the unit that its definition says. A number
    that is not there is null. Every field is in every file, and newer versions may add others
    anywhere.
    """

    cases: tuple[CaseEntry, ...] = ()
    """The cases that a test was selected of, each once."""


class _Head(Struct, tag_field="schema", tag=SCHEMA):
    """What is read first: of a file of another schema, only this is known."""


# -------------------------------------------------------------------------------- writing


def write_json(file: Path, results: Results) -> None:
    """Write the results file of a session."""
    write_whole(file, to_json(results))


def to_json(results: Results) -> bytes:
    """Turn results into the content of a results file."""
    return msgspec.json.format(msgspec.json.encode(results_file(results))) + b"\n"


def results_file(results: Results) -> ResultsFile:
    """Add to a session's results what is derived from them."""
    cases = tuple(_entry(result, results.metrics) for result in results.cases)
    return ResultsFile(**{**asdict(results), "cases": cases})


def metric_entry(metric: MetricResult) -> dict[str, Any]:
    """Return what was measured and judged of a metric, by the names that every report uses."""
    entry: dict[str, Any] = to_builtins(_numbers(metric))
    return entry


def _numbers(metric: MetricResult) -> MetricNumbers:
    judgement = metric.judgement
    decision = judgement.decision if judgement else None
    return MetricNumbers(
        unit=metric.metric.unit,
        better=metric.metric.better,
        median=_finite(metric.median),
        mean=_finite(metric.mean),
        spread=_finite(None if metric.spread is None else round(metric.spread, 3)),
        accepted=metric.accepted.accepted if metric.accepted else None,
        reference=metric.reference,
        difference_percent=decision.difference_percent if decision else None,
        verdict=judgement.verdict if judgement else None,
        reason=judgement.reason if judgement else None,
        efficiency_percent=metric.efficiency_percent,
    )


def _entry(result: CaseResult, systems: Mapping[str, tuple[Metric, ...]]) -> CaseEntry:
    case, metrics = result.case, result.metrics()
    if result.measurement is None:
        # Nothing ran: the numbers that the system would have are null.
        metrics = {
            **{
                metric.name: MetricResult(metric=metric, accepted=result.accepted.get(metric.name))
                for metric in systems.get(case.system, ())
                if metric.ratio_of is None or case.is_scaled
            },
            **metrics,
        }
    batch = None
    if case.work is not None:
        batch = Batch(per_replica=case.batch_per_replica, global_=case.global_batch)
    return CaseEntry(
        **asdict(result),
        id=case.id,
        system=case.system,
        framework=case.framework,
        model=case.model,
        precision=case.precision or None,
        batch=batch,
        topology=str(case.topology),
        numbers={name: _numbers(metric) for name, metric in metrics.items()},
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def encodable(value: T) -> T:
    """Escape what no encoder takes: halves of surrogate pairs, as in names of files."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return convert(_escaped(to_builtins(value)), type(value))
    return value


def _escaped(plain: Any) -> Any:
    if isinstance(plain, str):
        return plain.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(plain, dict):
        return {_escaped(key): _escaped(item) for key, item in plain.items()}
    return [_escaped(item) for item in plain] if isinstance(plain, list | tuple) else plain


# -------------------------------------------------------------------------------- reading


def read_results(file: Path) -> Results:
    """Read a results file; what is derived, and unknown fields, are left out.

    Raises:
        ResultsFileError: It cannot be read, is not JSON, or breaks the schema.
    """
    try:
        with open(file, "rb", opener=open_regular) as opened:
            content = opened.read()
        msgspec.json.decode(content, type=_Head)
        results = msgspec.json.decode(content, type=Results)
        for time in filter(None, (results.started, results.ended)):
            parse_time(time)
    except OSError as error:
        raise ResultsFileError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ResultsFileError(
            f"{file}: is no results file of schema {SCHEMA}: {error}; name one that --dlperf-json "
            "of this version wrote"
        ) from error
    return results


# ----------------------------------------------------------------------------- the schema


def json_schema() -> dict[str, Any]:
    """Describe the results file as a JSON Schema (2020-12), its fields by their docstrings."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Results of a session (pytest-dlperf), schema {SCHEMA}",
        **documented_schema_of(ResultsFile),
    }

"""Read the results file, also one of a newer version: unknown fields are left out."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.explanation import Explanation
from pytest_dlperf.model.judgement import Judgement
from pytest_dlperf.model.measurement import (
    Estimator,
    Fingerprint,
    InterleavedRuns,
    Measurement,
    Run,
)
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.plain import FormError, from_plain, shown, to_plain, where
from pytest_dlperf.model.records import Accepted, CaseResult, with_measurements
from pytest_dlperf.model.results import Results, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeAlias

    from pytest_dlperf.model.metric import Metric

    _Place: TypeAlias = tuple[str | int, "_Place"] | None

SCHEMA: Final = 2
MAX_BYTES: Final = 64 * 2**20
"""Larger files are refused: ten thousand failed cases with their reasons fit."""

MAX_NUMBERS: Final = 10_000_000
"""Metrics of a case times its runs, of all cases: ten thousand cases have three millions."""

MAX_METRICS: Final = 1000
"""Metrics of a system: shipped ones have a dozen."""

_MAX_DEPTH: Final = 40
_TOO_DEEP: Final = "is nested too deeply to be a results file"
_MAX_INTEGER: Final = 2**63
_SCHEMA_FILE: Final = Path(__file__).parent / "schema.json"


class ResultsFileError(UsageError):
    """A file holds no results of a schema that is known; the message names file and place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementEntry:
    """A measurement in the file: its metrics are defined with their system."""

    case_id: str
    estimator: Estimator
    metrics: tuple[str, ...]
    runs: tuple[Run, ...]
    fingerprint: Fingerprint | None
    available_runs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleavedEntry:
    """Both arms of interleaved runs in the file."""

    candidate: MeasurementEntry
    control: MeasurementEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEntry:
    """A metric of a case in the file, without the numbers that follow from these and the runs."""

    baseline: Accepted | None
    gate: Mapping[str, Any] | None
    """A judgement without its metric."""
    explanation: Explanation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntry:
    """A case in the file, without what follows from these; that is not read."""

    id: str
    reference_topology: Topology | None
    runs: tuple[Run, ...]
    metrics: Mapping[str, MetricEntry]
    fingerprint: Fingerprint | None
    available_runs: int | None
    whole: bool
    unfinished: tuple[str, ...]
    interleaved: InterleavedEntry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntries:
    """All cases, and the measured references that no test was selected of."""

    cases: tuple[CaseEntry, ...]
    reference_measurements: tuple[MeasurementEntry, ...]


def read_results(file: Path) -> Results:
    """Read a results file (``--dlperf-json``); fields that are not known here are passed over.

    Raises:
        ResultsFileError: It cannot be read, is not JSON, or breaks the schema.
    """
    try:
        plain = _parsed(_content(file))
        _refuse_other_schemas(plain)
        _refuse_doubles(plain)
        _refuse_unusual_values(plain)
        found = decode(plain)
        _validate(plain)
    except FormError as error:
        raise ResultsFileError(f"{file}: {error}") from error
    except RecursionError as error:
        raise ResultsFileError(f"{file}: {_TOO_DEEP}") from error
    return found


def decode(plain: dict[str, Any]) -> Results:
    """Make results of what ``encode`` has written."""
    results = from_plain(Results, {**plain, "cases": []})
    for system, metrics in results.metrics.items():
        if len(metrics) > MAX_METRICS:
            problem = f"has {len(metrics):,} metrics; no system has more than {MAX_METRICS:,}"
            raise FormError(problem, "metrics", system)
    entries = from_plain(CaseEntries, plain)
    _refuse_too_many_numbers(entries)
    reader = _Reader(results)
    cases = []
    for index, entry in enumerate(entries.cases):
        with _below("cases", index):
            cases.append(reader.case(entry))
    for index, reference in enumerate(entries.reference_measurements):
        with _below("reference_measurements", index):
            reader.measured[reference.case_id] = reader.measurement(reference)
    return replace(
        results, cases=tuple(with_measurements(result, reader.measured) for result in cases)
    )


@contextmanager
def _below(*path: str | int) -> Iterator[None]:
    """Name the place in the file of what goes wrong inside."""
    try:
        yield
    except FormError as error:
        raise FormError(error.problem, *path, *error.path) from error


class _Reader:
    """Makes cases of a file's entries, with the metrics that the file defines."""

    def __init__(self, results: Results) -> None:
        self._estimator = results.estimator
        self._metrics = {
            system: {metric.name: metric for metric in metrics}
            for system, metrics in results.metrics.items()
        }
        self.measured: dict[str, Measurement] = {}

    def case(self, entry: CaseEntry) -> CaseResult:
        case = _case(entry.id, "id")
        try:
            case = replace(case, reference_topology=entry.reference_topology)
        except ValueError as error:
            raise FormError(str(error), "reference_topology") from error
        metrics = self._defined(case, entry.metrics)
        if entry.runs or entry.fingerprint is not None or entry.available_runs is not None:
            own = [metric.name for metric in metrics.values() if metric.ratio_of is None]
            self.measured[case.id] = self.measurement(
                MeasurementEntry(
                    case_id=case.id,
                    estimator=self._estimator,
                    metrics=tuple(own),
                    runs=entry.runs,
                    fingerprint=entry.fingerprint,
                    available_runs=entry.available_runs,
                )
            )
        return CaseResult(
            case=case,
            interleaved=self._interleaved(entry.interleaved),
            is_whole=entry.whole,
            unfinished=entry.unfinished,
            accepted={
                name: one.baseline
                for name, one in entry.metrics.items()
                if one.baseline is not None
            },
            judgements={
                name: _judgement(metrics[name], one.gate)
                for name, one in entry.metrics.items()
                if one.gate is not None
            },
            explanations={
                name: one.explanation
                for name, one in entry.metrics.items()
                if one.explanation is not None
            },
        )

    def measurement(self, entry: MeasurementEntry) -> Measurement:
        if THROUGHPUT not in entry.metrics:
            raise FormError(f"{THROUGHPUT!r} is missing; all that was measured has it", "metrics")
        if entry.estimator is not self._estimator:
            raise FormError(
                f"found {entry.estimator.value}; the session's is {self._estimator.value}",
                "estimator",
            )
        return Measurement(
            case_id=entry.case_id,
            estimator=entry.estimator,
            metrics=tuple(self._defined(_case(entry.case_id, "case_id"), entry.metrics).values()),
            runs=entry.runs,
            fingerprint=entry.fingerprint,
            available_runs=entry.available_runs,
        )

    def _interleaved(self, entry: InterleavedEntry | None) -> InterleavedRuns | None:
        if entry is None:
            return None
        with _below("interleaved"):
            return InterleavedRuns(
                candidate=self.measurement(entry.candidate), control=self.measurement(entry.control)
            )

    def _defined(self, case: Case, names: Iterable[str]) -> dict[str, Metric]:
        known = self._metrics.get(case.system, {})
        for name in names:
            if name not in known:
                place = where(("metrics", case.system))
                raise FormError(f"{shown(name)} is not defined in {place}", "metrics")
        return {name: known[name] for name in names}


def _case(case_id: str, key: str) -> Case:
    try:
        return Case.from_id(case_id)
    except ValueError as error:
        # It names the id first, which may be of any length.
        form = str(error).rpartition("; ")[2]
        raise FormError(f"found {shown(case_id)}; {form}", key) from error


def _judgement(metric: Metric, gate: Mapping[str, Any]) -> Judgement:
    with _below("metrics", metric.name, "gate"):
        return from_plain(Judgement, {**gate, "metric": to_plain(metric)})


def _content(file: Path) -> bytes:
    try:
        # Not by its size: a pipe has none.
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        told = (error.strerror if isinstance(error, OSError) else None) or error
        raise FormError(f"cannot be read: {told}") from error
    if len(content) > MAX_BYTES:
        raise FormError(
            f"is larger than {MAX_BYTES // 2**20} MiB, which no results file is; name the file "
            "that --dlperf-json wrote"
        )
    if not content.strip():
        raise FormError("is empty; name the file that --dlperf-json wrote")
    return content


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise FormError(
            f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}; name the file "
            "that --dlperf-json wrote, whole"
        ) from error
    except FormError:
        raise
    except ValueError as error:
        # Bytes that are no text, or a number of thousands of digits.
        raise FormError(f"is not JSON: {error}; name the file that --dlperf-json wrote") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object, in which JSON's readers take the last or the first of two values."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise FormError(f"the key {shown(twice)} stands in an object twice")
    return made


def _refuse_other_schemas(plain: Any) -> None:
    if not isinstance(plain, dict) or "schema" not in plain:
        raise FormError("holds no results: $.schema is missing; name the file of --dlperf-json")
    found = plain["schema"]
    if type(found) is int and found == SCHEMA:
        return
    remedy = ""
    if type(found) is int:
        newer, older = "update it to read this file", "judge the session's logs again to write one"
        remedy = f", so {newer if found > SCHEMA else older}"
    raise FormError(
        f"found {shown(found)}; this version of pytest-dlperf reads schema {SCHEMA}{remedy}",
        "schema",
    )


def _refuse_doubles(plain: dict[str, Any]) -> None:
    """Refuse a case that has two entries, before anything is made of either."""
    seen: set[str] = set()
    for name, key in (("cases", "id"), ("reference_measurements", "case_id")):
        entries = plain.get(name)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            case_id = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(case_id, str):
                if case_id in seen:
                    raise FormError(
                        f"{shown(case_id)} stands in the file twice; each case has one entry",
                        *(name, index, key),
                    )
                seen.add(case_id)


def _refuse_unusual_values(plain: Any) -> None:
    """Refuse NaN, huge integers and deep nesting, also in unknown fields."""
    left: list[tuple[Any, int, _Place]] = [(plain, 1, None)]
    while left:
        holder, depth, place = left.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            kind = type(value)
            if kind is dict or kind is list:
                if depth == _MAX_DEPTH:
                    raise FormError(_TOO_DEEP)
                left.append((value, depth + 1, (key, place)))
            elif kind is float and not math.isfinite(value):
                raise _unusual(value, "finite numbers", (key, place))
            elif kind is int and abs(value) > _MAX_INTEGER:
                raise _unusual(value, "integers below 2**63", (key, place))


def _unusual(value: float, allowed: str, place: _Place) -> FormError:
    path: list[str | int] = []
    while place is not None:
        key, place = place
        path.append(key)
    return FormError(f"found {shown(value)}; allowed: {allowed}", *reversed(path))


def _refuse_too_many_numbers(entries: CaseEntries) -> None:
    """Refuse what would take minutes: the numbers of each metric are sought in all runs."""
    counts = [len(one.runs) * len(one.metrics) for one in entries.cases]
    counts += [len(one.runs) * len(one.metrics) for one in entries.reference_measurements]
    for one in entries.cases:
        if one.interleaved is not None:
            arms = one.interleaved.candidate, one.interleaved.control
            counts += [len(arm.runs) * len(arm.metrics) for arm in arms]
    if sum(counts) > MAX_NUMBERS:
        raise FormError(
            f"holds {sum(counts):,} numbers, the metrics of each case times its runs; no session "
            f"has more than {MAX_NUMBERS:,}"
        )


@lru_cache
def _validator() -> Callable[[Any], Any]:
    import fastjsonschema

    schema = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    formats = {"date-time": _is_time}
    valid: Callable[[Any], Any] = fastjsonschema.compile(schema, formats=formats, use_default=False)
    return valid


def _is_time(text: str) -> bool:
    try:
        return bool(parse_time(text))
    except ValueError:
        return False


def _validate(plain: Any) -> None:
    from fastjsonschema import JsonSchemaValueException

    try:
        _validator()(plain)
    except JsonSchemaValueException as error:
        if error.rule == "required":
            missing = next(key for key in error.rule_definition if key not in error.value)
            problem = f"the key {missing!r} is missing"
        else:
            problem = f"found {shown(error.value)}; allowed: {error.rule} {error.rule_definition}"
        raise FormError(problem, *_path(plain, error.name)) from error


def _path(plain: Any, name: str) -> Iterator[str | int]:
    """Yield the keys to what the validator calls ``data.cases[3].id``; they may hold dots."""
    left = name.removeprefix("data")
    while left:
        if isinstance(plain, list):
            number = left[1:].partition("]")[0]
            key: str | int = int(number)
            left = left[len(number) + 2 :]
        else:
            ahead = [one for one in plain if f"{left}.".startswith((f".{one}.", f".{one}["))]
            longest: str = max(ahead, key=len)
            left = left[len(longest) + 1 :]
            key = longest
        yield key
        plain = plain[key]

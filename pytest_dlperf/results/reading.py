"""Read the results file, also one of a newer version: unknown fields are left out."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import ValidationError, convert
from msgspec.structs import asdict, replace

from pytest_dlperf.files.writing import open_regular
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Judgement
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, RunStatus
from pytest_dlperf.model.results import (
    BaselineChange,
    CaseResult,
    Results,
    parse_time,
    with_measurements,
)
from pytest_dlperf.results.file import SCHEMA, MeasurementEntry, ResultsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_dlperf.model.measurement import Run
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.results.file import CaseEntry, InterleavedEntry

MAX_BYTES: Final = 64 * 2**20
"""Larger files are refused: ten thousand failed cases with their reasons fit."""

MAX_NUMBERS: Final = 10_000_000
"""Metrics of a case times its runs, of all cases: ten thousand cases have three millions."""

_MAX_DEPTH: Final = 40
_TOO_DEEP: Final = "is nested too deeply to be a results file"
_MAX_INTEGER: Final = 2**63
_MAX_SHOWN: Final = 60
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")


class ResultsFileError(UsageError):
    """A file is not a results file of a known schema; the message names file and place."""


class _FormError(ValueError):
    """The content breaks the form of a results file; ``path`` leads to the place in it."""

    def __init__(self, problem: str, *path: str | int) -> None:
        super().__init__(problem, *path)
        self.problem = problem
        self.path = path

    def __str__(self) -> str:
        return f"{_where(self.path)}: {self.problem}" if self.path else self.problem


def read_results(file: Path) -> Results:
    """Read a results file (``--dlperf-json``); unknown fields are ignored.

    Raises:
        ResultsFileError: It cannot be read, is not JSON, or breaks the schema.
    """
    try:
        plain = _parsed(_content(file))
        _check_schema(plain)
        _check_values(plain)
        return _results(_decoded(plain))
    except _FormError as error:
        raise ResultsFileError(f"{file}: {error}") from error
    except RecursionError as error:
        raise ResultsFileError(f"{file}: {_TOO_DEEP}") from error


# ----------------------------------------------------------------------------------- JSON


def _content(file: Path) -> bytes:
    try:
        with open(file, "rb", opener=open_regular) as opened:
            content = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or error
        raise _FormError(f"cannot be read: {problem}") from error
    if len(content) > MAX_BYTES:
        raise _FormError(
            f"is larger than {MAX_BYTES // 2**20} MiB, which no results file is; name the file "
            "that --dlperf-json wrote"
        )
    if not content.strip():
        raise _FormError("is empty; name the file that --dlperf-json wrote")
    return content


def _parsed(content: bytes) -> Any:
    """Parse JSON with the standard library.

    msgspec would take the last of two values of a key, and refuse half a pair of surrogates.
    """
    try:
        return json.loads(content, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise _FormError(
            f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}; name the file "
            "that --dlperf-json wrote, whole"
        ) from error
    except _FormError:
        raise
    except ValueError as error:
        # Bytes that are not text, or a number of thousands of digits.
        raise _FormError(f"is not JSON: {error}; name the file that --dlperf-json wrote") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _FormError(f"the key {_shown(twice)} stands in an object twice")
    return made


def _check_schema(plain: Any) -> None:
    if not isinstance(plain, dict) or "schema" not in plain:
        raise _FormError("holds no results: $.schema is missing; name the file of --dlperf-json")
    found = plain["schema"]
    if type(found) is int and found == SCHEMA:
        return
    remedy = ""
    if type(found) is int:
        newer, older = "update it to read this file", "judge the session's logs again to write one"
        remedy = f", so {newer if found > SCHEMA else older}"
    raise _FormError(
        f"found {_shown(found)}; this version of pytest-dlperf reads schema {SCHEMA}{remedy}",
        "schema",
    )


def _check_values(plain: Any) -> None:
    """Refuse NaN, huge integers and deep nesting, also in unknown fields."""
    left: list[tuple[Any, tuple[str | int, ...]]] = [(plain, ())]
    while left:
        holder, path = left.pop()
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            kind = type(value)
            if kind is dict or kind is list:
                if len(path) == _MAX_DEPTH:
                    raise _FormError(_TOO_DEEP)
                left.append((value, (*path, key)))
            elif kind is float and not math.isfinite(value):
                raise _FormError(f"found {_shown(value)}; expected finite number", *path, key)
            elif kind is int and abs(value) > _MAX_INTEGER:
                raise _FormError(f"found {_shown(value)}; expected less than 2**63", *path, key)


# ---------------------------------------------------------------------------- by the types


def _decoded(plain: Any) -> ResultsFile:
    try:
        return convert(plain, ResultsFile)
    except ValidationError as error:
        raise _located(plain, str(error)) from error
    except UnicodeEncodeError as error:
        # Where msgspec expects no text as such, it cannot look at half a pair of surrogates.
        raise _FormError(f"found {_shown(error.object)}, which is not valid there") from error


def _located(plain: Any, message: str) -> _FormError:
    """Make the error of the place and value at which msgspec raised one with this message."""
    problem, _, place = message.rpartition(" - at `$")
    path: list[str | int] = []
    value = plain
    for name, index in _STEP.findall(place):
        key = name or (_bad_key(plain, value, message) if index == "..." else int(index))
        path.append(key)
        value = value[key]
    if problem.startswith("Object missing required field") or not place:
        missing = (problem or message).split("`")[1]
        return _FormError(f"the key {missing!r} is missing", *path)
    if problem.startswith("Invalid enum value"):
        return _FormError(f"found {_shown(value)}, which this version does not know", *path)
    expected = problem.removeprefix("Expected ").partition(", got ")[0]
    return _FormError(f"found {_shown(value)}; expected {expected}", *path)


def _bad_key(plain: Any, holder: dict[str, Any], message: str) -> str:
    """Find the first key of ``holder`` whose value causes the error; drop all others.

    msgspec writes ``[...]`` for a key.
    """
    items = list(holder.items())

    def raises(count: int) -> bool:
        holder.clear()
        holder.update(items[:count])
        try:
            convert(plain, ResultsFile)
        except ValueError as error:
            return str(error) == message
        return False

    count = bisect_left(range(len(items)), True, key=raises)
    raises(count)
    return items[count - 1][0]


def _where(path: Iterable[str | int]) -> str:
    """Write a place as JSON paths do: ``$.cases[3].runs[0].throughput``."""
    parts = [
        f".{part}" if isinstance(part, str) and _KEY.fullmatch(part) else f"[{_shown(part)}]"
        for part in path
    ]
    return "".join(["$", *parts])


def _shown(value: Any) -> str:
    """Write a value in short and on one line, whatever it holds."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value, default=str).replace("\x7f", "\\u007f")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# ---------------------------------------------------------------------- entries to results


def _results(file: ResultsFile) -> Results:
    """Build the session's results from the entries of a file."""
    _check_time("started", file.started)
    if file.ended is not None:
        _check_time("ended", file.ended)
    builder = _Builder(file)
    cases = []
    for index, entry in enumerate(file.cases):
        with _below("cases", index):
            builder.once(entry.id, "id")
            cases.append(builder.case(entry))
    for index, reference in enumerate(file.reference_measurements):
        with _below("reference_measurements", index):
            builder.once(reference.case_id, "case_id")
            builder.measured[reference.case_id] = builder.measurement(reference)
    return Results(
        session=file.session,
        cluster=file.cluster,
        estimator=file.estimator,
        started=file.started,
        ended=file.ended,
        interrupted=file.interrupted,
        strict=file.strict,
        environment=file.environment,
        metrics=file.metrics,
        cases=tuple(with_measurements(result, builder.measured) for result in cases),
        unfit_hosts=file.unfit_hosts,
        ignored_logs=file.ignored_logs,
        baseline_changes=tuple(
            convert(change, BaselineChange, from_attributes=True)
            for change in file.baseline_changes
        ),
    )


@contextmanager
def _below(*path: str | int) -> Iterator[None]:
    """Prepend a path to those of errors."""
    try:
        yield
    except _FormError as error:
        raise _FormError(error.problem, *path, *error.path) from error


def _check_time(key: str, text: str) -> None:
    try:
        parse_time(text)
    except ValueError as error:
        raise _FormError(f"found {_shown(text)}; expected ISO 8601 with its zone", key) from error


class _Builder:
    """Builds cases from entries, with the metrics that the file defines."""

    def __init__(self, file: ResultsFile) -> None:
        self._estimator = file.estimator
        self._metrics = {
            system: {metric.name: metric for metric in metrics}
            for system, metrics in file.metrics.items()
        }
        self.measured: dict[str, Measurement] = {}
        self._seen: set[str] = set()
        self._numbers = 0

    def once(self, case_id: str, key: str) -> None:
        """Refuse a second entry of a case."""
        if case_id in self._seen:
            problem = f"{_shown(case_id)} stands in the file twice; each case has one entry"
            raise _FormError(problem, key)
        self._seen.add(case_id)

    def case(self, entry: CaseEntry) -> CaseResult:
        case = _with_reference(_with_axes(_case(entry.id, "id"), entry), entry.reference_topology)
        metrics = self._defined(case, entry.metrics)
        taken_on = (entry.fingerprint, entry.available_runs, entry.logs_digest)
        if entry.runs or any(part is not None for part in taken_on):
            own = [metric.name for metric in metrics.values() if metric.ratio_of is None]
            self.measured[case.id] = self.measurement(
                MeasurementEntry(
                    case_id=case.id,
                    estimator=self._estimator,
                    metrics=tuple(own),
                    runs=entry.runs,
                    fingerprint=entry.fingerprint,
                    available_runs=entry.available_runs,
                    logs_digest=entry.logs_digest,
                )
            )
        items = entry.metrics.items()
        return CaseResult(
            case=case,
            interleaved=self._interleaved(entry.interleaved),
            is_whole=entry.whole,
            unfinished=entry.unfinished,
            accepted={name: one.baseline for name, one in items if one.baseline is not None},
            judgements={
                name: Judgement(metric=metrics[name], **asdict(one.gate))
                for name, one in items
                if one.gate is not None
            },
            explanations={
                name: one.explanation for name, one in items if one.explanation is not None
            },
        )

    def measurement(self, entry: MeasurementEntry) -> Measurement:
        if not entry.metrics:
            raise _FormError("is empty; every measurement has a main metric", "metrics")
        if entry.estimator is not self._estimator:
            raise _FormError(
                f"found {entry.estimator.value}; the session's is {self._estimator.value}",
                "estimator",
            )
        _check_runs(entry.runs)
        # Reports would take minutes: the numbers of each metric are sought in all runs.
        self._numbers += len(entry.runs) * len(entry.metrics)
        if self._numbers > MAX_NUMBERS:
            raise _FormError(
                f"the file has more than {MAX_NUMBERS:,} numbers up to here, the metrics of each "
                "case times its runs; no session has"
            )
        defined = self._defined(_case(entry.case_id, "case_id"), entry.metrics)
        return Measurement(**{**asdict(entry), "metrics": tuple(defined.values())})

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
                place = _where(("metrics", case.system))
                raise _FormError(f"{_shown(name)} is not defined in {place}", "metrics")
        return {name: known[name] for name in names}


def _case(case_id: str, key: str) -> Case:
    try:
        return Case.from_id(case_id)
    except ValueError as error:
        # The message names the id first, which may be of any length.
        form = str(error).rpartition("; ")[2]
        raise _FormError(f"found {_shown(case_id)}; {form}", key) from error


def _with_axes(case: Case, entry: CaseEntry) -> Case:
    """Name the axes of a probe, which its id does not."""
    if not entry.axes:
        return case
    try:
        named = replace(case, free_axes=entry.axes)
    except ValueError as error:
        raise _FormError(str(error), "axes") from error
    if named.id != entry.id:
        raise _FormError(f"found {_shown(entry.axes)}; the id has other values", "axes")
    return named


def _with_reference(case: Case, text: str | None) -> Case:
    try:
        topology = None if text is None else Topology.parse(text)
    except ValueError as error:
        form = str(error).rpartition("; ")[2]
        raise _FormError(f"found {_shown(text)}; {form}", "reference_topology") from error
    try:
        return replace(case, reference_topology=topology)
    except ValueError as error:
        raise _FormError(str(error), "reference_topology") from error


def _check_runs(runs: tuple[Run, ...]) -> None:
    for index, run in enumerate(runs):
        if run.metrics and run.status is not RunStatus.OK:
            problem = f"found {_shown(run.status.value)}; a run with metrics is ok"
            raise _FormError(problem, "runs", index, "status")

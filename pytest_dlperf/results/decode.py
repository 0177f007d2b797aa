"""Read the results file, also one of a newer version: unknown fields are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Judgement, Quantity
from pytest_dlperf.model.measurement import Fingerprint, InterleavedRuns, Measurement, Run
from pytest_dlperf.model.plain import FormError, from_plain, shown
from pytest_dlperf.model.records import AcceptedNumbers, CaseResult
from pytest_dlperf.model.results import Results, parse_time

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

    from pytest_dlperf.model.measurement import Estimator

SCHEMA: Final = 1
MAX_BYTES: Final = 64 * 2**20
"""Larger files are refused: ten thousand failed cases with their reasons fit."""

_MAX_INTEGER: Final = 2**63
_SCHEMA_FILE: Final = Path(__file__).parent / "schema.json"


class ResultsFileError(UsageError):
    """A file holds no results of a schema that is known; the message names file and place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntry:
    """A case in the file, without the numbers that follow from these; those are not read."""

    id: Case
    unit: str | None
    runs: tuple[Run, ...]
    speedup: float | None
    accepted: AcceptedNumbers | None
    gate: Mapping[Quantity, Judgement | None]
    fingerprint: Fingerprint | None
    available_runs: int | None
    whole: bool
    unfinished: tuple[Quantity, ...]
    interleaved: InterleavedRuns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEntries:
    """All cases, and the single devices that no test was selected of."""

    cases: tuple[CaseEntry, ...]
    single_devices: tuple[Measurement, ...]


def read_results(file: Path) -> Results:
    """Read a results file (``--dlperf-json``); fields that are not known here are passed over.

    Raises:
        ResultsFileError: It cannot be read, is not JSON, or breaks the schema.
    """
    try:
        plain = _parsed(_content(file))
        _refuse_other_schemas(plain)
        _refuse_unusual_values(plain)
        found = decode(plain)
        _validate(plain)
    except FormError as error:
        raise ResultsFileError(f"{file}: {error}") from error
    return found


def decode(plain: dict[str, Any]) -> Results:
    """Make results of what ``encode`` has written."""
    results = from_plain(Results, {**plain, "cases": []})
    entries = from_plain(CaseEntries, plain)
    units = {}
    measured: dict[str, Measurement | None] = {}
    for index, entry in enumerate(entries.cases):
        if entry.id.id in measured:
            raise _twice(entry.id.id, "cases", index, "id")
        try:
            measured[entry.id.id] = _measurement(entry, results.estimator)
        except FormError as error:
            raise FormError(error.problem, "cases", index, *error.path) from error
        if entry.unit is not None:
            units[entry.id.system] = entry.unit
    for index, single in enumerate(entries.single_devices):
        if single.case_id in measured:
            raise _twice(single.case_id, "single_devices", index, "case_id")
        measured[single.case_id] = single
    cases = tuple(_case_result(entry, measured) for entry in entries.cases)
    return replace(results, cases=cases, units=units)


def _twice(case_id: str, *path: str | int) -> FormError:
    return FormError(f"{shown(case_id)} stands in the file twice; each case has one entry", *path)


def _measurement(entry: CaseEntry, estimator: Estimator) -> Measurement | None:
    if not entry.runs and entry.fingerprint is None and entry.available_runs is None:
        return None
    if entry.unit is None:
        raise FormError("found null; a case with runs has a unit", "unit")
    return Measurement(
        case_id=entry.id.id,
        unit=entry.unit,
        estimator=estimator,
        runs=entry.runs,
        fingerprint=entry.fingerprint,
        available_runs=entry.available_runs,
    )


def _case_result(entry: CaseEntry, measured: Mapping[str, Measurement | None]) -> CaseResult:
    return CaseResult(
        case=entry.id,
        measurement=measured[entry.id.id],
        single_device=measured.get(entry.id.single_device.id),
        interleaved=entry.interleaved,
        is_whole=entry.whole,
        unfinished=entry.unfinished,
        speedup=entry.speedup,
        accepted=entry.accepted,
        judgements={quantity: one for quantity, one in entry.gate.items() if one is not None},
    )


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
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise FormError(
            f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}; name the file "
            "that --dlperf-json wrote, whole"
        ) from error
    except RecursionError as error:
        raise FormError("is nested too deeply to be a results file") from error
    except ValueError as error:
        # Bytes that are no text, or a number of thousands of digits.
        raise FormError(f"is not JSON: {error}; name the file that --dlperf-json wrote") from error


def _refuse_other_schemas(plain: Any) -> None:
    if not isinstance(plain, dict) or "schema" not in plain:
        raise FormError("holds no results: $.schema is missing; name the file of --dlperf-json")
    found = plain["schema"]
    if type(found) is int and found == SCHEMA:
        return
    newer = type(found) is int and found > SCHEMA
    update = ", so update it to read this file" if newer else ""
    raise FormError(
        f"found {shown(found)}; this version of pytest-dlperf reads schema {SCHEMA}{update}",
        "schema",
    )


def _refuse_unusual_values(plain: Any) -> None:
    """Refuse NaN and huge integers, also in unknown fields."""
    left: list[tuple[Any, tuple[str | int, ...]]] = [(plain, ())]
    while left:
        value, path = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise FormError(f"found {shown(value)}; allowed: finite numbers", *path)
        if isinstance(value, int) and abs(value) > _MAX_INTEGER:
            raise FormError(f"found {shown(value)}; allowed: integers below 2**63", *path)
        if isinstance(value, dict | list):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            left += [(item, (*path, key)) for key, item in items]


@lru_cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator, FormatChecker

    formats = FormatChecker(formats=())
    formats.checks("date-time", raises=ValueError)(_is_time)
    schema = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return Draft202012Validator(schema, format_checker=formats)


def _is_time(found: Any) -> bool:
    return not isinstance(found, str) or bool(parse_time(found))


def _validate(plain: Any) -> None:
    error = next(_validator().iter_errors(plain), None)
    if error is not None:
        rule = f"found {shown(error.instance)}; allowed: {error.validator} {error.validator_value}"
        is_missing = error.validator == "required"
        raise FormError(error.message if is_missing else rule, *error.absolute_path)

"""Results read back from a file, also one of a newer version: what is unknown is left out."""

from __future__ import annotations

import hashlib
import json
import math
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.times import parse_time
from pytest_dlperf.results.encode import SCHEMA
from pytest_dlperf.results.rebuilding import FormError, rebuild, shown, where

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from pytest_dlperf.model.results import Results

MAX_BYTES: Final = 64 * 2**20
"""What is larger is no results file: ten thousand failed cases with their reasons fit."""

_DEEPEST: Final = 64
_LARGEST_INTEGER: Final = 2**63
_SHOWN: Final = 3
_SCHEMA_FILE: Final = Path(__file__).parent / "schema.json"


class ResultsFileError(UsageError):
    """A file holds no results of a schema that is known; the message names file and place."""


def read_results(file: Path) -> Results:
    """Read a results file (``--dlperf-json``).

    A file of an early version has no session id: it gets one that its content gives, always the
    same. Fields that are not known here are passed over.

    Raises:
        ResultsFileError: It cannot be read, is no JSON, or breaks the schema.
    """
    try:
        content = _content(file)
        plain = _parsed(content)
        _refuse_other_schemas(plain)
        _refuse_what_is_no_plain_data(plain)
        _validate(plain)
        _refuse_other_dates(plain)
        return rebuild(plain, instead_of_session=hashlib.sha256(content).hexdigest()[:32])
    except FormError as error:
        raise ResultsFileError(f"{file}: {error}") from error


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
            f"is no JSON: {error.msg} in line {error.lineno}, column {error.colno}; name the file "
            "that --dlperf-json wrote, whole"
        ) from error
    except RecursionError as error:
        raise FormError("is nested too deeply to be a results file") from error
    except ValueError as error:
        # Bytes that are no text, or a number of thousands of digits.
        raise FormError(f"is no JSON: {error}; name the file that --dlperf-json wrote") from error


def _refuse_other_schemas(plain: Any) -> None:
    if not isinstance(plain, dict) or "schema" not in plain:
        raise FormError("holds no results: $.schema is missing; name the file of --dlperf-json")
    found = plain["schema"]
    if type(found) is int and found == SCHEMA:
        return
    newer = type(found) is int and found > SCHEMA
    raise FormError(
        f"$.schema: found {shown(found)}; this version of pytest-dlperf reads schema {SCHEMA}"
        + (", so update it to read this file" if newer else "")
    )


def _refuse_what_is_no_plain_data(plain: Any) -> None:
    """Refuse numbers that are none, and nesting that nobody writes, also in unknown fields."""
    left: list[tuple[Any, tuple[str | int, ...]]] = [(plain, ())]
    while left:
        value, path = left.pop()
        if isinstance(value, float):
            if not math.isfinite(value):
                raise FormError(f"{where(path)}: {shown(value)} is no number that a file may hold")
        elif isinstance(value, int):
            if abs(value) > _LARGEST_INTEGER:
                raise FormError(f"{where(path)}: the number is too large: {shown(value)}")
        elif isinstance(value, dict | list):
            if len(path) >= _DEEPEST:
                raise FormError("is nested too deeply to be a results file")
            items = value.items() if isinstance(value, dict) else enumerate(value)
            left += [(item, (*path, key)) for key, item in items]


def _refuse_other_dates(plain: dict[str, Any]) -> None:
    """Refuse the 31st of February, which has the form of a date."""
    for key in ("started", "ended"):
        text = plain.get(key)
        if text is None:
            continue
        try:
            parse_time(text)
        except ValueError as error:
            raise FormError(f"$.{key}: found {shown(text)}, which is no date: {error}") from error


# ------------------------------------------------------------------------- the schema


@lru_cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator

    schema = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return Draft202012Validator(schema)


def _validate(plain: Any) -> None:
    told: dict[str, str] = {}
    for error in _validator().iter_errors(plain):
        place = where(error.absolute_path)
        # One mistake may break two rules, and only what is missing is missing beside others.
        key = error.message if error.validator == "required" else ""
        told.setdefault(f"{place} {key}", f"{place}: {_told(error)}")
        if len(told) > _SHOWN:
            break
    if told:
        more = ["and more"] if len(told) > _SHOWN else []
        raise FormError("; ".join([*islice(told.values(), _SHOWN), *more]))


def _told(error: ValidationError) -> str:
    """A mistake in the words that this package has for mistakes."""
    found = shown(error.instance)
    rule: Any = error.validator_value
    if error.validator == "required":
        # One error for each of them, which only its message tells apart.
        key = error.message.removesuffix(" is a required property")
        return f"the key {key} is missing"
    if error.validator == "type":
        allowed = " or ".join([rule] if isinstance(rule, str) else rule)
        return f"found {found}; allowed: {allowed}"
    if error.validator == "enum":
        allowed = ", ".join("null" if word is None else str(word) for word in rule)
        return (
            f"found {found}; known here: {allowed}. If a newer version of pytest-dlperf "
            "wrote it, update this one"
        )
    said = {
        "minimum": "at least {}",
        "maximum": "at most {}",
        "exclusiveMinimum": "above {}",
        "minLength": "at least {} character",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "pattern": "the form {}",
    }
    if error.validator in said:
        return f"found {found}; allowed: {said[error.validator].format(rule)}"
    return f"found {found}, against the rule {error.validator!r}"

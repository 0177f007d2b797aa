"""What the keys of hand-written files are made of.

A mapping of a file is a struct, and a key one of its fields: its type, with bounds and patterns, is
what ``msgspec`` reads and writes the schema from. The text below it is for whoever writes the file.
"""

from __future__ import annotations

import atexit
import gc
import shlex
from typing import Annotated, Any, Final, TypeVar, Union

from msgspec import Meta, Struct
from msgspec.structs import asdict

from pytest_dlperf.model.case import NAME_PATTERN, PRECISION_PATTERN

SCALAR: Final = "scalar"
"""The format of text that an editor may take for a number, or for true and false."""
T = TypeVar("T")

# msgspec 0.22 may free the types of structs within structs twice when Python collects all objects
# at its end, which is a crash after a good session. What is frozen is not collected.
atexit.register(gc.freeze)


class Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping of a file."""

    def set_keys(self) -> dict[str, Any]:
        """Return what is written, by the names of the fields, without what is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def text(pattern: str, title: str) -> Meta:
    """Say what a text must be like, as an expression and in words."""
    return Meta(pattern=pattern, title=title)


TOPOLOGY: Final = r"[1-9][0-9]{0,4}n[1-9][0-9]{0,3}g"

Text = Annotated[str, Meta(pattern=r"\S")]
Scalar = Annotated[str, Meta(extra_json_schema={"format": SCALAR})]
"""Text as it is written, which an editor may take for a number."""
Line = Annotated[str, text(r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", "one line")]
Name = Annotated[
    str,
    text(
        f"^{NAME_PATTERN}$", "a name of lower-case letters, digits and underscores, a letter first"
    ),
]
Precision = Annotated[str, text(f"^{PRECISION_PATTERN}$", "a precision such as fp32")]
TopologyText = Annotated[str, text(f"^{TOPOLOGY}$", "a topology such as 4n8g")]
VariableName = Annotated[
    str, text(r"^[A-Za-z_][A-Za-z0-9_.-]*$", "the name of an environment variable")
]
FolderPath = Annotated[str, text("^/", "the absolute path of a folder")]
Expression = Annotated[str, text(r"\S", "a regular expression")]
Positive = Annotated[int, Meta(ge=1, le=10**9)]
Seconds = Annotated[float, Meta(gt=0, le=10**8)]
Percent = Annotated[float, Meta(gt=0, lt=100)]
Operations = Annotated[float, Meta(gt=0, le=1e30)]

SomeOf = Annotated[tuple[T, ...], Meta(min_length=1)]
OneOrMore = Union[T, SomeOf[T]]  # noqa: UP007 - mypy knows no alias of T | …
Arguments = Scalar | tuple[Scalar, ...]
"""A list, or text that is split as by a shell."""


def words(value: Arguments | None) -> tuple[str, ...]:
    """Return a list that may be written as text."""
    return tuple(shlex.split(value)) if isinstance(value, str) else value or ()


def many(value: T | tuple[T, ...]) -> tuple[T, ...]:
    """Return the values of ``OneOrMore``."""
    return value if isinstance(value, tuple) else (value,)

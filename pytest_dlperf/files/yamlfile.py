"""Reading hand-written YAML so that every mistake comes with its file, line and key path.

PyYAML's only home in the package. It is imported when the first file is read.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

T = TypeVar("T")

_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_YES: Final = ("true", "yes", "on")
_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {
    f"{_TAG}str": "text",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}bool": "a yes-or-no",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "a date",
    f"{_TAG}map": "a mapping",
    f"{_TAG}seq": "a list",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in one file. ``path`` is the key path, ``$`` being the file itself."""

    file: Path
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        """One line: where, then what."""
        return f"{self.file}:{self.line}: {self.path}: {self.message}"


class YamlError(UsageError):
    """All mistakes that were found in one or more files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems in the order of the files' lines."""
        self.problems = tuple(sorted(problems, key=lambda p: (str(p.file), p.line)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Where something stands in a text; lines and columns from 0, the end behind the last."""

    line: int
    column: int
    end_line: int
    end_column: int


class YamlValue:
    """A place in a YAML file: knows its line and key path, and reports mistakes there.

    The readers below return a stand-in (``None`` or empty) after a mistake, so that reading
    goes on and all mistakes of a file are found at once; ``load`` raises them in the end.
    """

    __slots__ = ("_node", "_problems", "file", "path")

    def __init__(self, file: Path, node: Any, path: str, problems: list[Problem]) -> None:
        """Stand at a node of a parsed file."""
        self.file = file
        self.path = path
        self._node = node
        self._problems = problems

    @property
    def line(self) -> int:
        """Line number in the file, from 1."""
        return int(self._node.start_mark.line) + 1

    @property
    def end_line(self) -> int:
        """The last line that holds something of this value, from 1."""
        if self._node.id == "scalar" or not self._node.value:
            end = self._node.end_mark
            # A block text ends where the next line begins.
            return int(end.line) + (0 if self.is_block_text and end.column == 0 else 1)
        last = self._node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
        return max(
            YamlValue(self.file, node, self.path, self._problems).end_line,
            self.line if not self._node.flow_style else int(self._node.end_mark.line) + 1,
        )

    @property
    def span(self) -> Span:
        """From the first character of this value to the one behind its last, in lines from 0."""
        start, end = self._node.start_mark, self._node.end_mark
        return Span(
            line=int(start.line),
            column=int(start.column),
            end_line=int(end.line),
            end_column=int(end.column),
        )

    @property
    def is_block_text(self) -> bool:
        """Whether this is text below a ``|`` or ``>``."""
        return self._node.id == "scalar" and self._node.style in ("|", ">")

    @property
    def key_lines(self) -> dict[str, int]:
        """On which line the keys of a mapping stand, from 1."""
        return {
            str(key.value): int(key.start_mark.line) + 1
            for key, _ in (self._node.value if self.is_mapping else ())
        }

    @property
    def column(self) -> int:
        """How far the value is indented."""
        return int(self._node.start_mark.column)

    @property
    def is_flow(self) -> bool:
        """Whether a mapping or list is written in braces or brackets."""
        return bool(getattr(self._node, "flow_style", False))

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands here."""
        return self._plain("null")

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping."""
        return bool(self._node.id == "mapping")

    @property
    def is_scalar(self) -> bool:
        """Whether the value is neither a mapping nor a list."""
        return bool(self._node.id == "scalar")

    @property
    def mistakes(self) -> int:
        """How many mistakes have been reported in the whole file so far."""
        return len(self._problems)

    @property
    def is_empty_list(self) -> bool:
        """Whether the value is a list without elements."""
        return self.is_list and not self._node.value

    @property
    def is_list(self) -> bool:
        """Whether the value is a list."""
        return bool(self._node.id == "sequence")

    def fault(self, message: str) -> None:
        """Report a mistake at this place."""
        self._problems.append(Problem(self.file, self.line, self.path, message))

    def fault_found(self, allowed: str) -> None:
        """Report that something else stands here than what is allowed."""
        self.fault(f"found {self._found()}; allowed: {allowed}")

    def _found(self) -> str:
        kind = _KINDS.get(self._node.tag, f"the tag {self._node.tag}")
        if self._node.id != "scalar":
            return kind
        return f"{self._node.value!r}, {kind}" if self._node.value else kind

    def _plain(self, tag: str) -> bool:
        return bool(self._node.id == "scalar" and self._node.tag == _TAG + tag)

    # ------------------------------------------------------------------ scalars

    def text(self, allowed: str = "text") -> str | None:
        """Text that YAML does not take for anything else."""
        if self._plain("str") and self._node.value.strip():
            return str(self._node.value)
        hint = " (quote it to make it text)" if self._node.id == "scalar" else ""
        self.fault_found(allowed + hint if self._node.value else allowed)
        return None

    def scalar(self, allowed: str = "text or a number") -> str | None:
        """Any scalar, as it is written: versions such as 10.2 stay what they look like.

        Empty text has to be in quotes, and so have ``null`` and ``~``: without them YAML takes them
        for nothing.
        """
        if (
            self._node.id == "scalar"
            and (self._node.value.strip() or self._node.style)
            and not self._plain("null")
        ):
            return str(self._node.value)
        # An unquoted {placeholder} is a mapping to YAML.
        hint = " (in quotes, if the braces belong to it)" if self.is_flow else ""
        self.fault_found(allowed + hint)
        return None

    def choice(self, allowed: Sequence[str], *, otherwise: str = "") -> str | None:
        """One of a set of words; ``otherwise`` tells what else the caller takes here."""
        if self._plain("str") and self._node.value in allowed:
            return str(self._node.value)
        also = f", or {otherwise}" if otherwise else ""
        self.fault_found(", ".join(allowed) + also + nearest(str(self._node.value), allowed))
        return None

    def yes_or_no(self) -> bool | None:
        """True or false, in YAML's words."""
        if self._plain("bool"):
            return str(self._node.value).lower() in _YES
        self.fault_found("true or false")
        return None

    def whole_number(self, minimum: int) -> int | None:
        """A whole number of at least ``minimum``."""
        if self._plain("int") and _WHOLE_NUMBER.fullmatch(self._node.value):
            value = int(self._node.value)
            if value >= minimum:
                return value
        self.fault_found(f"a whole number of at least {minimum}")
        return None

    def positive_number(
        self, *, or_zero: bool = False, below: float = math.inf, unit: str = ""
    ) -> float | None:
        """A finite number above zero, or zero too where that is allowed."""
        # Not the tag: YAML 1.1 takes 1e5 for text.
        if (
            self._node.id == "scalar"
            and not self._node.style  # in quotes it is text
            and _NUMBER.fullmatch(self._node.value)
        ):
            value = float(self._node.value)
            if 0 < value < below or (or_zero and value == 0):
                return value
        lowest = "from 0 on" if or_zero else "above 0"
        limit = f" and below {below:g}" if math.isfinite(below) else ""
        self.fault_found(f"a finite number {lowest}{limit}{f', in {unit}' if unit else ''}")
        return None

    def percentage(self) -> float | None:
        """A number of percent above 0 and below 100."""
        return self.positive_number(below=100, unit="percent")

    def parsed(self, parse: Callable[[str], T], allowed: str) -> T | None:
        """Text that ``parse`` understands; its ``ValueError`` becomes the mistake."""
        value = self.text(allowed)
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            self.fault(str(error))
            return None

    # --------------------------------------------------------- lists and mappings

    def items(self, allowed: str) -> list[YamlValue]:
        """The elements of a list that is not empty."""
        if self._node.id != "sequence" or not self._node.value:
            found = "an empty list" if self._node.id == "sequence" else self._found()
            self.fault(f"found {found}; allowed: {allowed}")
            return []
        return [
            YamlValue(self.file, node, f"{self.path}[{index}]", self._problems)
            for index, node in enumerate(self._node.value)
        ]

    def entries(
        self, allowed: str = "a mapping", *, or_nothing: bool = False
    ) -> list[tuple[str, YamlValue]]:
        """Keys and values of a mapping; a key that stands twice is a mistake."""
        if or_nothing and self._plain("null"):
            return []
        if self._node.id != "mapping":
            self.fault_found(allowed)
            return []
        first_lines: dict[str, int] = {}
        found = []
        for key_node, value_node in self._node.value:
            if key_node.id != "scalar":
                YamlValue(self.file, key_node, self.path, self._problems).fault_found(
                    "a plain word as the key"
                )
                continue
            key = str(key_node.value)
            value = YamlValue(self.file, value_node, f"{self.path}.{key}", self._problems)
            if key in first_lines:
                YamlValue(self.file, key_node, value.path, self._problems).fault(
                    f"the key stands twice; the first is on line {first_lines[key]}"
                )
                continue
            first_lines[key] = int(key_node.start_mark.line) + 1
            found.append((key, value))
        return found

    def fields(self, *, required: Sequence[str], optional: Sequence[str] = ()) -> Fields:
        """The mapping's values by key, with missing and unknown keys reported."""
        known = (*required, *optional)
        values: dict[str, YamlValue] = {}
        for key, value in self.entries(f"a mapping with {', '.join(known)}"):
            if key in known:
                values[key] = value
            else:
                value.fault(
                    f"unknown key {key!r}; allowed: {', '.join(known)}{nearest(key, known)}"
                )
        if self.is_mapping:
            for key in required:
                if key not in values:
                    self.fault(f"the key {key!r} is missing")
        return Fields(values)

    def checked_fields(self) -> Fields:
        """The mapping's values by key, where a schema has looked at the keys."""
        return Fields(dict(self.entries()))


class Fields:
    """The known keys of one mapping."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, YamlValue]) -> None:
        """Hold values by key."""
        self._values = values

    def get(self, key: str, read: Callable[[YamlValue], T | None], default: T) -> T:
        """Read a key's value; the default where the key is absent or its value a mistake."""
        if key not in self._values:
            return default
        value = read(self._values[key])
        return default if value is None else value

    def place(self, key: str) -> YamlValue | None:
        """The place of a key, if it is there."""
        return self._values.get(key)

    def __iter__(self) -> Iterator[str]:
        """The keys that are there."""
        return iter(self._values)


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean …?`` when a known word is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def load(file: Path, read: Callable[[YamlValue], T], *, text: str | None = None) -> T:
    """Parse a file and read it with ``read``.

    Raises:
        YamlError: The file cannot be read or parsed, or ``read`` reported mistakes.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        source = file.read_text(encoding="utf-8") if text is None else text
        node = yaml.compose(source, Loader=loader)
    except OSError as error:
        raise YamlError([Problem(file, 1, "$", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: {error.reason} at byte {error.start}"
        raise YamlError([Problem(file, 1, "$", message)]) from error
    except yaml.YAMLError as error:
        raise YamlError([_syntax_problem(file, error)]) from error
    if node is None:
        raise YamlError([Problem(file, 1, "$", "the file is empty")])
    problems: list[Problem] = []
    result = read(YamlValue(file, node, "$", problems))
    if problems:
        raise YamlError(problems)
    return result


def first_anchor(text: str) -> int | None:
    """The line, from 1, of a text's first anchor or alias; ``None`` where it has neither.

    What stands behind an alias stands elsewhere in the file too, so such a text cannot be edited
    place by place.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    kinds = (yaml.AnchorToken, yaml.AliasToken)
    tokens = yaml.scan(text, Loader=loader)
    lines = (int(token.start_mark.line) + 1 for token in tokens if isinstance(token, kinds))
    return next(lines, None)


def _syntax_problem(file: Path, error: Any) -> Problem:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    return Problem(file, line, "$", f"not YAML: {f'{context}: ' if context else ''}{what}")

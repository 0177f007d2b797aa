"""Regular expressions that users declare for lines of a log: matched in linear time.

They run on RE2, which never backtracks: no expression and no log can make a reader hang. Those in
which no engine could backtrack run on Python's, which is faster. An expression has to mean the same
in Python's syntax, by which it is checked, and in RE2's.
"""

from __future__ import annotations

import re
import warnings
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_REPEATS: Final = frozenset("*+?{")
_CHARACTER: Final = re.compile(r"[^.^$*+?{}\[\]()|\\]|\\[^a-zA-Z0-9]", re.DOTALL)
_IGNORES_CASE: Final = re.compile(r"\(\?[a-z]*i")
_FLAGS: Final = re.compile(r"\(\?[aiLmsux-]")

_Span: TypeAlias = "tuple[int, int]"
_ABSENT: Final = (-1, -1)

TOKENS: Final = re.compile(
    r"\\[1-9][0-9]*|\\x[0-9a-fA-F]{2}|\\0[0-7]{0,2}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?(?:P[=<]|<?[=!]|[(#>:]|[a-zA-Z-]+)?"
    r"|\{[0-9]*,?[0-9]*\}[+?]?|[*+?][+?]?|.",
    re.DOTALL,
)
_AROUND: Final = "the text itself; what stands around a group need not belong to it"
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
_TWICE: Final = "what may stand there a second time"
_REFUSED: Final = (
    (r"\(\?<?[=!]", "look-around", _AROUND),
    (r"\\(?![1-3][0-7]{2})[1-9][0-9]*|\(\?P=", "a reference to a group", _TWICE),
    (r"\(\?\(", "a condition", "alternatives: (?:…|…)"),
    (r"\(\?>", "an atomic group", "(?:…)"),
    (r"(?:[*+?]|\{.*\})\+", "a possessive repetition", "it without the last +"),
    (r"\(\?#", "a comment", "it into the file, behind a #"),
    (r"\(\?[a-z]*[aLux]", "a flag", "the expression without it; known are i, m and s"),
    (r"\\A", r"\A", "^, the begin of a line"),
    (r"\\Z", r"\Z", "$, the end of a line"),
    (r"\{,.*", "a repetition without a least number", "{0,…}"),
)
_PLAIN: Final = re.compile(
    r"\\[dDwWbsStnrfv]|\\[^\w\s]|\[(?:[^\\\[]|\\[dDwWsStnrfv]|\\[^\w\s])*\]"
    r"|\(\?P<|\(\?:|[*+?]\??|[^\\\[{]"
)
_SHORT: Final = 500
"""Characters up to which RE2 takes any expression of plain parts."""
_GROUPS: Final = re.compile(r"\((?:\?:)?|\(\?P<|\)")
_ATOM: Final = re.compile(
    r"\\[dDwWsSt]|\\[^\w\s]|\[(?:[^\\\[]|\\[dDwWsSt]|\\[^\w\s])*\]|[^\\\[\]{}()*+?|^$]", re.DOTALL
)
_BYTES: Final = tuple(bytes((each,)) for each in range(256))
_MARKS: Final = (
    rb"(?: {0,9}[0-9]{1,6}: "  # srun --label
    rb"|(?:\w{3} \w{3} {1,2}[0-9]{1,2} [0-9:]{8} [0-9]{4})?"  # mpirun
    rb"\[[0-9]{1,5},[0-9]{1,6}\]<std\w{3}>: ?"
    rb"|\[[A-Za-z_]{1,20}[0-9]{1,6}\]: ?"  # torchrun
    rb"|\xef\xbb\xbf"  # a file that was joined to another
    rb"|\(\w{1,60} (?:rank=[0-9]{1,6}, )?pid=[0-9]{1,10}(?:, ip=[0-9a-f.:]{1,40})?\) "  # Ray
    rb"|[^|\n]{0,200}[0-9]%\|[^|\n]{0,400}\| {0,9}[0-9.kMG]{1,15}/[0-9.kMG?]{1,15} "
    rb"\[[^\]\n]{0,200}\] ?)+"  # tqdm
)
"""What launchers and bars print in front of a program's line."""
_MAX_MATCHES_ON_A_LINE: Final = 1000
"""Matches of a line to go through: each may look at the rest of a line that may be long."""


class Match:
    """Where an expression stands in a text."""

    __slots__ = ("_index", "_spans", "string")

    def __init__(
        self, text: bytes | bytearray, spans: list[_Span], index: Mapping[str, int]
    ) -> None:
        """Take the spans of all, and of each group."""
        self.string = text
        self._spans = spans
        self._index = index

    def __getitem__(self, group: int | str) -> bytes | Any:
        """Return what a group took; ``None`` where it took no part."""
        span = self._spans[self._index[group] if isinstance(group, str) else group]
        return None if span == _ABSENT else bytes(self.string[slice(*span)])

    def group(self, *groups: int | str) -> tuple[bytes | Any, ...]:
        """Return what several groups took."""
        return tuple(map(self.__getitem__, groups))

    def start(self, group: int | str = 0) -> int:
        """Return where a group begins."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """Return where a group ends."""
        return self.span(group)[1]

    def span(self, group: int | str = 0) -> _Span:
        """Return where a group begins and ends; -1 where it took no part."""
        return self._spans[self._index[group] if isinstance(group, str) else group]


AnyMatch: TypeAlias = "Match | re.Match[bytes]"


class Expression(Struct, frozen=True, dict=True):
    """An expression over bytes that matches within single lines; ``^`` and ``$`` are their ends.

    Lines end with a line feed. Nothing heavy is imported before the first search.
    """

    pattern: str
    groupindex: Mapping[str, int]
    groups: int

    def __hash__(self) -> int:
        """Hash the pattern."""
        return hash(self.pattern)

    @cached_property
    def literal(self) -> bytes:
        """A text that stands in each match; to look for it is several times as fast.

        Empty where none is easily seen.
        """
        return max(texts_of(self.pattern), key=len)

    @cached_property
    def _one_pass(self) -> re.Pattern[bytes] | None:
        """What Python's engine makes of it, where that never backtracks."""
        if not is_one_pass(TOKENS.findall(self.pattern)):
            return None
        return re.compile(self.pattern.encode())

    @property
    def is_one_pass(self) -> bool:
        """Whether Python's engine finds it without backtracking, and within single lines."""
        return self._one_pass is not None

    def search(
        self, text: bytes | bytearray, begin: int = 0, end: int | None = None
    ) -> AnyMatch | None:
        """Find the first match."""
        return next(self.finditer(text, begin, end), None)

    def finditer(
        self, text: bytes | bytearray, begin: int = 0, end: int | None = None
    ) -> Iterator[AnyMatch]:
        """Find all matches, one behind the other."""
        end = len(text) if end is None else end
        if self._one_pass is not None:
            return self._one_pass.finditer(text, begin, end)
        if self.pattern.startswith("^") and not begin:
            return self._behind_marks(text, end)
        return (Match(text, spans, self.groupindex) for spans in self._all(text, begin, end))

    def _behind_marks(self, text: bytes | bytearray, end: int) -> Iterator[AnyMatch]:
        """Find all matches; without any, those behind what others print where the line begins."""
        spans = None
        for spans in self._all(text, 0, end):
            yield Match(text, spans, self.groupindex)
        marks = None if spans else _marks().match(text, 0, end)
        if marks is not None:
            for spans in self._all(text[marks.end() : end], 0, end - marks.end()):
                moved = [(a, b) if a < 0 else (a + marks.end(), b + marks.end()) for a, b in spans]
                yield Match(text, moved, self.groupindex)

    def _all(self, text: bytes | bytearray, begin: int, end: int) -> Iterator[list[_Span]]:
        match, literal = self._engine, self.literal
        count, since = 0, begin
        # A text is found faster than an expression; what lacks it needs no other search.
        while text.find(literal, begin, end) >= 0:
            spans = match(text, begin, end)
            start, stop = spans[0]
            if start < 0:
                return
            yield spans
            begin = stop + (start == stop)
            count += 1
            if count == _MAX_MATCHES_ON_A_LINE:
                if text.find(b"\n", since, begin) < 0:
                    raise BrokenContractError(
                        f"a line matches '{self.pattern}' more than {count} times"
                    )
                count, since = 0, begin

    def check(self) -> None:
        """Compile it now; ``ValueError`` where it cannot be."""
        if self._one_pass is None:
            self._engine  # noqa: B018 - made when asked for

    @cached_property
    def _engine(self) -> Callable[[bytes | bytearray, int, int], list[_Span]]:
        return _engine(self.pattern)


@cache
def _marks() -> re.Pattern[bytes]:
    return re.compile(_MARKS)


def _engine(pattern: str) -> Callable[[bytes | bytearray, int, int], list[_Span]]:
    """Compile for RE2: what it returns gives the spans of all and of each group, from a place on.

    Raises:
        ValueError: RE2 refuses it.
    """
    # The module that the package re2 wraps: its matches take half the time.
    from re2 import _re2

    options = _re2.RE2.Options()
    # Logs are bytes, whatever is broken in them.
    options.encoding = _re2.RE2.Options.Encoding.LATIN1
    options.never_nl = True
    options.log_errors = False
    engine = _re2.RE2(b"(?m)" + pattern.encode(), options)
    if not engine.ok():
        said = engine.error().decode(errors="replace")
        raise ValueError(f"{pattern!r} cannot be searched for: {said}")
    return partial(engine.Match, _re2.RE2.Anchor.UNANCHORED)


@lru_cache(maxsize=256)
def compiled(expression: str) -> Expression:
    """Check an expression that is matched within single lines; ``^`` and ``$`` are their ends.

    Raises:
        ValueError: It cannot be used; the message says why and begins with the expression.
    """
    tokens = TOKENS.findall(expression)
    for token in tokens:
        for refused, name, remedy in _REFUSED:
            if re.fullmatch(refused, token):
                raise ValueError(
                    f"{expression!r}: {name} ({token}) cannot be used here; write {remedy}"
                )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pattern = re.compile(expression.encode(), re.MULTILINE)
    except Warning as warning:
        raise ValueError(
            f"{expression!r} will not mean the same everywhere: {warning}"
        ) from warning
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"{expression!r} is not a regular expression: {error}") from error
    found = Expression(expression, pattern.groupindex, pattern.groups)
    # Python's engine is at hand, but may take for ever where what is repeated is a group.
    search = found.finditer if _REPEATED_GROUP.search(expression) else pattern.finditer
    if any(not match[0] for text in (b"", b"ab  1.") for match in search(text)):
        raise ValueError(
            f"{expression!r} matches the empty text; it must name some text of a record"
        )
    if not expression.isascii() and _IGNORES_CASE.search(expression):
        raise ValueError(
            f"{expression!r} ignores the case of letters, and has some that are not of ASCII; "
            "write both letters instead, as in [Aa]"
        )
    if len(expression) > _SHORT or not all(map(_PLAIN.fullmatch, tokens)):
        # RE2 has the last word; where its answer is clear, it is not even imported.
        found.check()
    return found


@cache
def texts_of(expression: str) -> tuple[bytes, ...]:
    """Find texts that stand in every match, as far as they are easily seen; some may be empty.

    Only what stands outside of groups and classes, and is not optional, is taken.
    """
    if _FLAGS.search(expression):
        return (b"",)
    runs = [""]
    depth = 0
    for part in TOKENS.findall(expression):
        if part == "|" and not depth:
            return (b"",)
        if not depth and _CHARACTER.fullmatch(part):
            runs[-1] += part[-1]
            continue
        depth += (part[0] == "(") - (part == ")")
        if part[0] in _REPEATS:
            # Absent, or there any number of times: neither is part of a fixed text.
            runs[-1] = runs[-1][:-1]
        runs.append("")
    return tuple(run.encode() for run in runs)


def may_be(expression: str, group: str, text: bytes) -> bool:
    """Say whether a named group can take a text, as far as it is seen without those around it."""
    begin = expression.find(f"(?P<{group}>")
    depth = end = 0
    for token in TOKENS.finditer(expression, begin):
        depth += (token[0][0] == "(") - (token[0] == ")")
        end = token.end()
        if not depth:
            break
    group_alone = expression[begin:end]
    if _REPEATED_GROUP.search(group_alone):
        return _engine(f"^{group_alone}$")(text, 0, len(text))[0] != _ABSENT
    try:
        alone = re.compile(group_alone.encode())
    except re.error:
        return True
    return alone.fullmatch(text) is not None


class _Atom(Struct):
    """One character, of a set of them; or a run of such."""

    taken: frozenset[bytes]
    may_lack: bool = False
    may_repeat: bool = False


def is_one_pass(tokens: Sequence[str]) -> bool:
    """Say whether an expression, given as its tokens, is surely matched without backtracking.

    Such are a fixed text with runs of characters in it, each of which ends at a character that
    cannot belong to it: ``loss: (?P<value>[0-9.]+) ``. Where a match fails, nothing is left to be
    tried, and none of the runs could hold the begin of another attempt.
    """
    atoms = _atoms(tokens)
    if not atoms or len(atoms[0].taken) != 1 or atoms[0].may_lack or atoms[0].may_repeat:
        return False
    begin = atoms[0].taken
    for position, atom in enumerate(atoms):
        if b"\n" in atom.taken:
            return False
        if not (atom.may_lack or atom.may_repeat):
            continue
        for after in atoms[position + 1 :]:
            if atom.taken & (after.taken | begin):
                return False
            if not after.may_lack:
                break
    return True


def _atoms(tokens: Sequence[str]) -> list[_Atom] | None:
    """Take an expression apart; ``None`` where there is more to it than groups of runs."""
    atoms: list[_Atom] = []
    in_name = closes = False
    for part in tokens:
        if in_name:
            in_name = part != ">"
        elif part in {"*", "+", "?"}:
            if not atoms or closes:
                return None
            atoms[-1].may_lack = part != "+"
            atoms[-1].may_repeat = part != "?"
        elif _GROUPS.fullmatch(part):
            in_name = part == "(?P<"
        elif _ATOM.fullmatch(part) and part.isascii():
            one = re.compile(part.encode())
            atoms.append(_Atom(frozenset(each for each in _BYTES if one.fullmatch(each))))
        else:
            return None
        closes = part == ")"
    return atoms

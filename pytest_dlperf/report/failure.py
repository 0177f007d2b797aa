"""The message of a test that fails, as pytest and its reports take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.report import texts
from pytest_dlperf.report.explanation_words import moved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.report.facts import Fact, Failure
    from pytest_dlperf.report.runs import RunsText

_LABEL: Final = 10
"""Columns of a label."""


class _Crash(Struct, frozen=True):
    """The place and text of a failure, for pytest's short summary, JUnit and annotations."""

    path: str
    lineno: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.lineno}: {self.message}"


class FailureText:
    """A failure's message as pytest's reports take it: its first line alone, or as a whole."""

    def __init__(
        self, text: str, location: tuple[str, int | None, str], judgement: Judgement | None = None
    ) -> None:
        """Keep the text; ``location`` is the test's: file, line from 0 on, and name."""
        self.gist = "" if judgement is None else moved(judgement) or judgement.verdict.value
        """How far the number has moved, or the verdict: what has room before a test's name."""
        # A log's lines stand in it, and a line may be a command to what runs the session.
        self._text = text = texts.plain(text)
        path, line, _ = location
        self.reprcrash = _Crash(path, (line or 0) + 1, text.partition("\n")[0])

    def __str__(self) -> str:
        """Return the whole message."""
        return self._text

    def toterminal(self, writer: Any) -> None:
        """Print the whole message, the verdict so that it is seen."""
        verdict, _, rest = self._text.partition("\n")
        writer.line(verdict, red=True, bold=True)
        if rest:
            writer.line(rest)


def failure_message(failure: Failure) -> str:
    """Write the verdict first, then what there is to know, then the runs and their logs."""
    lines = [str(failure.head), *fact_lines(failure.facts)]
    for runs in failure.runs:
        lines += _run_lines(runs)
    return "\n".join(lines)


def fact_lines(facts: Iterable[Fact]) -> Iterator[str]:
    """Write facts below a message, their labels in a column."""
    for fact in facts:
        first, *more = fact.lines
        yield f"  {fact.label:{_LABEL}} {first}"
        yield from (f"{' ' * (_LABEL + 5)}{line}" for line in more)


def _run_lines(found: RunsText) -> Iterator[str]:
    for metric, summed_up in zip(found.metrics, found.sums, strict=True):
        yield f"  {found.name}: {metric.name} {summed_up}"
    if found.folder:
        yield f"    logs in {found.folder}"
    for run in found.runs:
        reason = f" ({run.in_short})" if run.reason else ""
        yield f"    run {run.label}: {', '.join(run.cells)}{reason}  {run.log}"
    if found.left_out:
        yield f"    … and {found.left_out} more; --dlperf-json FILE has all of them"

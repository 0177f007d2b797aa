"""Read the head and the end of a log to find out what it holds, without a declared format.

However large the log is, the cost stays that of a few megabytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.facts import Fact
from pytest_dlperf.formats.log_format import LogFormat, Ranks
from pytest_dlperf.formats.meanings import Trainer, known_trainer
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.fact_check import tail
from pytest_dlperf.logs.lines import Block, LogFile, blocks, line_number
from pytest_dlperf.logs.records import Record, RecordFinder
from pytest_dlperf.logs.tracks import usual_gap
from pytest_dlperf.survey.line_clusters import LineClusters, plain

REACH: Final = 8 * 1024 * 1024
"""Bytes of the head in which steps are looked for."""
COMPARED: Final = 512 * 1024
"""Bytes of the head whose lines are compared with each other, which takes ten times as long."""
_END_COMPARED: Final = 128 * 1024
MAX_RECORDS: Final = 20_000
_ENOUGH_RECORDS: Final = 50
_BEGIN: Final = 4096
"""Bytes that tell whether a file is text."""
_BINARY: Final = 0.05
_CODE: Final = re.compile(
    rb"^[ \t]*(?:def \w+\(|class \w+.*:$|import \w|from [\w.]+ import |return\b|self\.\w|@\w|# )"
    rb".*\n?",
    re.MULTILINE,
)
_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}


class NoLogError(Exception):
    """The file is not text; the message says what it seems to be."""


class StepsOfLog(Struct, frozen=True, kw_only=True):
    """The steps of a log as it numbers them, as far as they were looked at."""

    records: int
    first: int
    usual: int
    """The first with which most others are in line: the 10th of steps 1, 10, 20 and so on."""
    last: int
    interval: int
    """The most frequent distance of two records of a rank."""
    epochs: int
    epoch_length: int | None
    """The highest number of an epoch that is followed by another."""
    ranks: tuple[str, ...]
    """As the records name them."""
    printers: int
    """How many ranks seem to print: those named, or how often a step stands there."""
    line: int
    """The line of the first record."""
    printers_are_unknown: bool = False
    """Whether records are counted, all ranks print, and nothing tells how many there are."""

    @property
    def total(self) -> int:
        """How many steps there are at least, from the first that stands there."""
        if self.epochs > 1 and self.epoch_length:
            of_epoch = self.epoch_length - self.first + 1
            return (self.epochs - 1) * of_epoch + max(self.last - self.first + 1, 0)
        return self.last - self.first + self.interval


class FoundFact(Struct, frozen=True):
    """What a log says of its run, for one fact of its format."""

    fact: Fact
    values: tuple[str, ...]


class HeadOfLog:
    """The head and the end of a log, read once."""

    def __init__(self, path: Path) -> None:
        """Read them.

        Raises:
            OSError: The file cannot be read, or is none.
            NoLogError: It holds no text.
        """
        self.path = path
        with LogFile(path) as file:
            self.size = file.size
            begin = file.part(0, _BEGIN)
            file.limit = REACH
            self.blocks = [*blocks(file)]
            file.limit = None
            self.read = min(self.size, REACH)
            self.end = tail(file, self.read)
        if not self.blocks:
            raise NoLogError("it is empty")
        _check_text(begin)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the log was left out."""
        return self.read == self.size

    @property
    def begin(self) -> bytes:
        """The first lines."""
        return plain(self.blocks[0].text)

    @cached_property
    def clusters(self) -> LineClusters:
        """The lines of the first regions, by what they look like."""
        clusters = LineClusters()
        for block in self.blocks:
            if block.offset >= COMPARED:
                break
            clusters.take(block.text)
        return clusters

    @cached_property
    def text(self) -> bytes:
        """Some lines of each kind, of head and end: where facts are looked for."""
        clusters = LineClusters()
        head = b"".join(block.text for block in self.blocks if block.offset < COMPARED)
        clusters.take(_without_code(head))
        if self.end is not None:
            clusters.take(self.end.text[-_END_COMPARED:])
        return clusters.examples

    def trainer(self) -> Trainer | None:
        """Return the known trainer that printed the log, if it is one."""
        found = known_trainer(self.clusters.examples)
        for block in self.blocks:
            if found is not None:
                break
            if block.offset >= COMPARED:
                found = known_trainer(block.text)
        return found

    def formats_of(self, formats: Iterable[LogFormat]) -> list[LogFormat]:
        """Return those of some formats that the log has records of, the one with most first."""
        counted = [(self._count(each), each) for each in formats]
        counted = [(count, each) for count, each in counted if count]
        return [each for _, each in sorted(counted, key=lambda pair: -pair[0])]

    def _count(self, log_format: LogFormat) -> int:
        return sum(1 for _ in islice(self._records(log_format), _ENOUGH_RECORDS))

    def _records(self, log_format: LogFormat) -> Iterator[Record]:
        """Find the records of the head, up to one that breaks the format."""
        finder = RecordFinder(log_format)
        with suppress(BrokenContractError):
            for block in self.blocks:
                yield from finder.find(block)

    def steps(self, log_format: LogFormat) -> StepsOfLog | None:
        """Count the steps of a format; ``None`` where there are none."""
        records = [*islice(self._records(log_format), MAX_RECORDS)]
        if not records:
            return None
        rows = [*map(_row, records)]
        last = rows[-1]
        if self.end is not None and log_format.step_every is None:
            with suppress(BrokenContractError):
                for record in RecordFinder(log_format).find(self.end):
                    last = _row(record)
        is_of_ranks = log_format.ranks in {Ranks.LOCAL, Ranks.ALL}
        return replace(
            _steps(rows, last, self._line(records[0].offset)),
            printers_are_unknown=log_format.step_every is not None and is_of_ranks,
        )

    def _line(self, offset: int) -> int:
        with LogFile(self.path) as file:
            return line_number(file, offset)

    def facts(self, log_format: LogFormat) -> list[FoundFact]:
        """List what the log says of its run, by the facts of a format."""
        found: list[FoundFact] = []
        for fact in log_format.facts:
            values: dict[str, None] = {}
            for block in self._with_end():
                for match in fact.expression.finditer(block.text):
                    values[(match[1] or b"").decode(errors="replace")] = None
                if len(values) > 1:
                    break
            if values:
                found.append(FoundFact(fact, tuple(values)))
        return found

    def shows(self, record: Expression) -> bool:
        """Say whether an expression finds anything on a line."""
        return any(
            record.search(line) is not None
            for block in self._with_end()
            for *_, line in block.lines_with(record.literal)
        )

    def _with_end(self) -> Iterator[Block]:
        # Facts of a format are looked for by its own expressions, which may be slow.
        yield from (block for block in self.blocks if block.offset < COMPARED)
        if self.end is not None:
            yield self.end


def _without_code(text: bytes) -> bytes:
    """Leave out the source that some trainers print first, from its first line of code to its last.

    What it sets is no fact of a run.
    """
    code = [*_CODE.finditer(text)]
    return text[: code[0].start()] + text[code[-1].end() :] if code else text


def _check_text(begin: bytes) -> None:
    for magic, name in _PACKED.items():
        if begin.startswith(magic):
            raise NoLogError(f"it is packed by {name}; unpack it first")
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise NoLogError("it is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8")
    odd = sum(byte < 8 or 13 < byte < 27 or 27 < byte < 32 for byte in begin)  # noqa: PLR2004 - control characters that no text has
    holes = begin.count(0)
    if odd > _BINARY * len(begin) and holes < len(begin):
        raise NoLogError("it is not text")


def _row(record: Record) -> tuple[int, int, bytes]:
    step = int(record.step[:15]) if record.step.isdigit() else 0
    epoch = int(record.epoch[:15]) if record.epoch.isdigit() else 0
    return epoch, step, record.rank


def _first_in_line(steps: Sequence[int], interval: int) -> int:
    """Find the first of the steps from which most others are so many times an interval away."""
    interval = max(interval, 1)
    [(rest, _)] = Counter(step % interval for step in steps).most_common(1)
    return next(step for step in steps if step % interval == rest)


def _steps(
    rows: Sequence[tuple[int, int, bytes]], last: tuple[int, int, bytes], line: int
) -> StepsOfLog:
    ranks = sorted({rank for *_, rank in rows}, key=lambda rank: (len(rank), rank))
    epochs = sorted({epoch for epoch, *_ in rows} | {last[0]})
    gaps: Counter[int] = Counter()
    for (epoch, step), (following, higher) in pairwise(sorted({row[:2] for row in rows})):
        if epoch == following:
            gaps[higher - step] += 1
    interval = usual_gap(gaps)
    first = rows[0]
    named = tuple(rank.decode(errors="replace") for rank in ranks if rank)
    same = sum(row[:2] == first[:2] for row in rows)
    return StepsOfLog(
        records=len(rows),
        first=first[1],
        usual=_first_in_line([step for _, step, _ in rows], interval),
        last=last[1],
        interval=interval,
        epochs=epochs[-1] - epochs[0] + 1,
        epoch_length=max((step for epoch, step, _ in rows if epoch < epochs[-1]), default=None),
        ranks=named,
        printers=len(named) or same,
        line=line,
    )

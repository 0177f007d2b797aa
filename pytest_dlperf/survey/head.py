"""Read the head and the end of a log to find out what it holds, without a declared format.

However large the log is, the cost stays that of a few megabytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.facts import Fact
from pytest_dlperf.formats.keyed import AnyRecord
from pytest_dlperf.formats.log_format import LogFormat, Ranks
from pytest_dlperf.formats.meanings import Trainer, known_trainer
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.facts import tail
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


class NoLogError(Exception):
    """The file holds no text; the message says what to do."""


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
        # Control characters that no text has; where a file was set back, it begins with zeros.
        odd = sum(byte < 8 or 13 < byte < 27 or 27 < byte < 32 for byte in begin)  # noqa: PLR2004
        if odd > _BINARY * len(begin) and any(begin):
            raise NoLogError("it is not text; unpack it, or convert it to UTF-8")

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
        return LineClusters(*(block.text for block in self.blocks if block.offset < COMPARED))

    @cached_property
    def text(self) -> bytes:
        """Some lines of each kind, of head and end: where facts are looked for."""
        head = b"".join(block.text for block in self.blocks if block.offset < COMPARED)
        # Some trainers print their source first; what it sets is no fact of a run.
        code = [*_CODE.finditer(head)]
        head = head[: code[0].start()] + head[code[-1].end() :] if code else head
        end = b"" if self.end is None else self.end.text[-_END_COMPARED:]
        return LineClusters(head, end).examples

    def trainer(self) -> Trainer | None:
        """Return the known trainer that printed the log, if it is one."""
        rest = (block.text for block in self.blocks if block.offset >= COMPARED)
        found = map(known_trainer, (self.clusters.examples, *rest))
        return next((each for each in found if each is not None), None)

    def formats_of(self, formats: Iterable[LogFormat]) -> list[LogFormat]:
        """Return those of some formats that the log has records of, the one with most first."""
        counts = [
            (sum(1 for _ in islice(self._records(each), _ENOUGH_RECORDS)), each) for each in formats
        ]
        return [each for count, each in sorted(counts, key=lambda pair: -pair[0]) if count]

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
        first, last = rows[0], rows[-1]
        if self.end is not None and log_format.step_every is None:
            with suppress(BrokenContractError):
                for record in RecordFinder(log_format).find(self.end):
                    last = _row(record)
        gaps = Counter(
            second[1] - first[1]
            for first, second in pairwise(sorted({row[:2] for row in rows}))
            if first[0] == second[0]
        )
        interval = usual_gap(gaps)
        [(rest, _)] = Counter(step % interval for _, step, _ in rows).most_common(1)
        epochs = {epoch for epoch, *_ in rows} | {last[0]}
        ranks = sorted({rank for *_, rank in rows if rank}, key=lambda rank: (len(rank), rank))
        is_of_ranks = log_format.ranks in {Ranks.LOCAL, Ranks.ALL}
        with LogFile(self.path) as file:
            line = line_number(file, records[0].offset)
        return StepsOfLog(
            records=len(rows),
            first=first[1],
            usual=next(step for _, step, _ in rows if step % interval == rest),
            last=last[1],
            interval=interval,
            epochs=max(epochs) - min(epochs) + 1,
            epoch_length=max((row[1] for row in rows if row[0] < max(epochs)), default=None),
            ranks=tuple(rank.decode(errors="replace") for rank in ranks),
            printers=len(ranks) or sum(row[:2] == first[:2] for row in rows),
            line=line,
            printers_are_unknown=log_format.step_every is not None and is_of_ranks,
        )

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

    def shows(self, record: AnyRecord) -> bool:
        """Say whether an expression finds anything on a line."""
        return any(
            True
            for block in self._with_end()
            for *_, line in block.lines_with(record.literal)
            for _ in record.finditer(line)
        )

    def _with_end(self) -> Iterator[Block]:
        # Facts of a format are looked for by its own expressions, which may be slow.
        yield from (block for block in self.blocks if block.offset < COMPARED)
        if self.end is not None:
            yield self.end


def _row(record: Record) -> tuple[int, int, bytes]:
    step = int(record.step[:15]) if record.step.isdigit() else 0
    epoch = int(record.epoch[:15]) if record.epoch.isdigit() else 0
    return epoch, step, record.rank

"""What ``pytest-dlperf read`` makes of a log of each trainer that it knows.

For each kind in ``formats/trainers.yaml`` a log is written as that trainer prints it, of a training
whose every second is known: slow steps first, then steps of slightly uneven length, on one node of
eight devices. It is read without options, then with what a user adds that ``read`` asks for. A
throughput is right if it is within 1 % of the truth; a refusal is, if its advice is the one that
leads there. A number that is off is wrong, unless what is in doubt about it is marked. A kind
without a template is a mistake:

    python benchmarks/read_kinds.py --only torchtitan
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from read_kinds_logs import LOGS
from read_kinds_training import BATCH, LENGTH
from read_kinds_variants import VARIANTS

from pytest_dlperf.command.main import main as command
from pytest_dlperf.formats.meanings import known_trainers

if TYPE_CHECKING:
    from read_kinds_training import Log

TOLERANCE: Final = 0.01
RIGHT, REFUSED, MARKED, WRONG = "right", "refused with the right advice", "marked", "wrong"
_VALUE: Final = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?) (\w+/s)")


@dataclass(frozen=True)
class Answer:
    """What ``read`` has said."""

    output: str

    def rows(self, label: str) -> str:
        """Join the rows of a label."""
        found, current = [], ""
        for line in self.output.splitlines()[1:]:
            current = line[2:14].strip() or current
            if current == label:
                found.append(line[14:].strip())
        return " ".join(found)

    @property
    def throughput(self) -> str:
        """The row of the throughput."""
        return self.rows("throughput")

    @property
    def steps_per_second(self) -> float | None:
        """The throughput as steps of the training that was written."""
        found = _VALUE.match(self.throughput)
        if found is None:
            return None
        work = {"tokens/s": BATCH * LENGTH, "steps/s": 1}.get(found[2], BATCH)
        return float(found[1]) / work

    @property
    def is_marked(self) -> bool:
        """Whether it says that the number is in doubt."""
        marks = "log.format|every rank prints|mean of the last"
        return "uncertain by" in self.throughput or bool(re.search(marks, self.rows("unsure")))


def read(*arguments: str) -> Answer:
    """Run the command in this process."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        command(["read", *arguments])
    return Answer(out.getvalue())


def judge(log: Log) -> tuple[str, str]:
    """Write a log and read it, with what it asks for; the verdict, and what was found."""
    Path("train.log").write_text(log.text(), encoding="utf-8")
    answers = {"": read("train.log")}
    if "--case" in answers[""].rows("unsure"):
        case = f"mine-model-fp32-b{BATCH // log.ranks}-1n{log.ranks}g"
        answers[f" with --case {case}"] = read("train.log", "--case", case)
    verdicts = [_verdict(log, answer, options) for options, answer in answers.items()]
    # A number that is marked does no harm where what is asked for makes it right.
    if verdicts[-1][0] == RIGHT and all(verdict != WRONG for verdict, _ in verdicts):
        return verdicts[-1]
    return max(verdicts, key=lambda each: (RIGHT, REFUSED, MARKED, WRONG).index(each[0]))


def _verdict(log: Log, answer: Answer, options: str) -> tuple[str, str]:
    true, found = 1 / log.seconds, answer.steps_per_second
    if found is None:
        said = answer.throughput or answer.output.splitlines()[0].partition(": ")[2]
        is_told = bool(log.advice) and log.advice in " ".join(answer.output.split())
        return (REFUSED, f"{log.advice}: {said}") if is_told else (WRONG, said)
    said = answer.throughput.partition(" (")[0].partition(";")[0]
    text = f"{said}{options}, {found / true - 1:+.1%} of {true:.4g} steps/s"
    if not off(found, true):
        return RIGHT, text
    return (MARKED if answer.is_marked else WRONG), text


def off(found: float, true: float) -> bool:
    """Whether a speed is not the true one."""
    return abs(found / true - 1) > TOLERANCE


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="kinds whose name holds this")
    parser.add_argument("--show", action="store_true", help="also what read says of each")
    options = parser.parse_args()
    kinds = [each.name for each in known_trainers()]
    logs = {kind: [log for log in (*LOGS, *VARIANTS) if log.kind == kind] for kind in kinds}
    missing = [kind for kind, mine in logs.items() if not mine]
    if missing or {log.kind for log in (*LOGS, *VARIANTS)} - set(kinds):
        raise SystemExit(f"no template, or none of a known kind: {', '.join(missing)}")
    counts: Counter[str] = Counter()
    print("| Kind | Read | Found, and what was true |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="read_kinds_") as folder:
        os.chdir(folder)
        for log in (log for kind in kinds if options.only in kind for log in logs[kind]):
            verdict, text = judge(log)
            counts[verdict] += 1
            name = f"{log.kind}: {log.variant}" if log.variant else log.kind
            print(f"| {name} | {verdict} | {text} |", flush=True)
            if options.show:
                print(read("train.log").output)
        os.chdir("/")
    print(
        f"\n{counts.total()} logs of {len(kinds)} kinds: "
        + ", ".join(f"{counts[each]} {each}" for each in (RIGHT, REFUSED, MARKED, WRONG))
    )
    sys.exit(bool(counts[WRONG]))


if __name__ == "__main__":
    main()

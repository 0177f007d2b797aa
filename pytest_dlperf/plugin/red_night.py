"""``--dlperf-why``: at the end of a red session, what differs is tried apart within a budget.

``pytest-dlperf why`` does it, in a process of its own: with the session's arguments, on its hosts,
which are free by then.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from pytest_dlperf.culprit.trial import joined
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.reports.report import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.model.results import Results

_COMMAND: Final = "import sys; from pytest_dlperf.command.main import main; sys.exit(main())"
_MIN_RUNS: Final = 3
_SPENT: Final = re.compile(r"^ +spent: ([0-9]+) runs?,[^(\n]*(?:\(([0-9]+) now\))?", re.MULTILINE)


def reasons(settings: Settings, results: Results, arguments: Sequence[str]) -> Iterator[Note]:
    """Ask for each number that got worse, the worst first, until the budget is spent.

    ``arguments`` are pytest's.
    """
    for result in results.cases:
        lost = [j.verdict.value for j in result.judgements.values() if j.verdict.has_no_number]
        if lost:
            text = f"{result.case.id}: {lost[0]}, so there is no number to ask about"
            yield Note(f"{text}; hosts and what they lack are not settable")
    budget, began = settings.why_budget, time.monotonic()
    runs = budget.runs
    for case_id, metric in _red(results):
        words = [sys.executable, "-c", _COMMAND, "why", case_id, "--metric", metric, "--yes"]
        if runs is not None:
            words += ["--runs", str(runs)]
        if budget.seconds is not None:
            left = budget.seconds - (time.monotonic() - began)
            words += ["--minutes", str(max(1, round(left / 60)))]
        if (runs is not None and runs < _MIN_RUNS) or (budget.seconds is not None and left <= 0):
            yield Note(f"{case_id} ({metric}): not asked why, as --dlperf-why-budget is spent")
            continue
        done = subprocess.run(  # noqa: S603 - this package, with the session's own arguments
            [*words, "--", *joined(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        yield from map(Note, done.stdout.splitlines())
        if runs is not None:
            runs -= sum(int(now or all_) for all_, now in _SPENT.findall(done.stdout))


def _red(results: Results) -> list[tuple[str, str]]:
    """List the cases and metrics that got worse, the largest loss first."""
    found = [
        (judgement.loss_percent or 0.0, result.case.id, name)
        for result in results.cases
        for name, judgement in result.judgements.items()
        if judgement.verdict is Verdict.REGRESSED and judgement.metric.ratio_of is None
    ]
    return [(case_id, name) for _, case_id, name in sorted(found, key=lambda one: -one[0])]

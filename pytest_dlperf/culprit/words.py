"""What a search says: while it runs, and at its end as text and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from pytest_dlperf.culprit.bisection import Answer, Question
from pytest_dlperf.culprit.journal import Run
from pytest_dlperf.culprit.search import CLAIMED, as_part
from pytest_dlperf.model import numbers
from pytest_dlperf.model.numbers import counted, interval, quantity, signed_percent
from pytest_dlperf.model.statistics import median

FOUND: Final = "found: "
_MAX_SHOWN: Final = 3
_MIN_SHARE: Final = 0.01


def progress_line(
    question: Question, runs: Sequence[Run], left: float | None, *, now: datetime
) -> str:
    """Say what the last run has shown, and how many are left."""
    run, number, when = runs[-1], f"run {len(runs)}", ""
    if left is not None:
        number += f" of about {len(runs) + left:.0f}"
        seconds = left * median([one.seconds for one in runs])
        when = f"; done about {now + timedelta(seconds=seconds):%H:%M}"
    told = f"{quantity(run.value, question.metric.unit)}{when}" if run.value is not None else ""
    told = run.problem.splitlines()[0] if run.problem is not None else told
    return f"{number}: {question.row.name(run.setting)}: {told}"


def headline(answer: Answer) -> str:
    """Say the answer in one sentence, as the next session's explanation quotes it."""
    runs = counted(len(answer.runs), "run")
    if answer.culprits:
        sure = math.floor(100 * min(answer.search.best()[1], CLAIMED))
        return f"{FOUND}{' or '.join(one.words for one in answer.culprits)}, {sure} % sure, {runs}"
    why = "the budget is spent" if answer.is_out_of_budget else "no candidate has all of the loss"
    return f"undecided: {why} after {runs}"


def facts(answer: Answer) -> Iterator[tuple[str, str]]:
    """List what belongs to the answer, by what it is called."""
    question, levels, found = answer.question, answer.search.levels, answer.found
    metric, candidates = question.metric, question.row.candidates
    better = question.direction(levels.good, levels.bad)
    for one in answer.culprits:
        if one.commit is not None and one.checkout is not None:
            said = f"{one.commit.title} ({one.commit.author}, {one.commit.at[:10]})"
            yield f"commit {one.name}", said
            if merged := one.checkout.merged_by(one.commit):
                yield "a merge", f"bisect {merged}"
    if found is None:
        parts = zip(answer.search.probabilities, candidates, strict=True)
        ranked = sorted(parts, key=lambda it: -it[0])[:_MAX_SHOWN]
        shares = [f"{it.words} ({100 * p:.0f} %)" for p, it in ranked if p >= _MIN_SHARE]
        yield "suspects", ", ".join(shares)
    else:
        sign, error = (-1 if better is metric.better else 1), 1.96 * found.loss_error
        change, *ends = (
            100 * sign * as_part(found.loss + side, better) for side in (0.0, -error, error)
        )
        low, high = sorted(ends)
        text = f"{signed_percent(change)} (95 %: {interval((low, high))})"
        yield f"change of {metric.name}", f"{text} from {quantity(levels.good, metric.unit)}"
    if better is not metric.better:
        yield "searched for", "a gain: the bad end is better than the good one"
    yield "searched", f"{counted(len(candidates), question.kind)} since {question.row.good}"
    now = f" ({answer.runs_now} now)" if answer.runs_now < len(answer.runs) else ""
    spent = numbers.duration(sum(one.seconds for one in answer.runs))
    yield "spent", f"{counted(len(answer.runs), 'run')}, {spent}{now}"
    problems = {question.row.name(one.setting): one.problem for one in answer.runs if one.problem}
    if problems:
        listed = [f"{name} ({why.splitlines()[0]})" for name, why in problems.items()]
        yield "not measured", numbers.named(listed, _MAX_SHOWN)


def text_lines(answer: Answer) -> Iterator[str]:
    """Tell a search for a terminal."""
    yield f"{answer.question.case_id}: {headline(answer)}"
    yield from (f"  {name}: {value}" for name, value in facts(answer))


def markdown(answer: Answer) -> str:
    """Tell a search as a comment or a page's part."""
    case = answer.question.case_id.replace("`", "'")
    lines = [f"**{case}** {_plain(headline(answer))}", ""]
    lines += [f"- {_plain(name)}: {_plain(value)}" for name, value in facts(answer)]
    return "\n".join([*lines, ""])


def _plain(text: str) -> str:
    """Escape what Markdown and the forges would act on: titles of commits may hold anything."""
    for one in "\\`*_{}[]<>#|!":
        text = text.replace(one, f"\\{one}")
    return text.replace("@", "@\u200b")

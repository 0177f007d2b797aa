"""What a search says: while it runs, and at its end as text and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from pytest_dlperf.culprit.bisection import Answer, Progress, Question
from pytest_dlperf.culprit.search import CLAIMED
from pytest_dlperf.model import numbers
from pytest_dlperf.model.numbers import counted, interval, quantity, signed_percent

FOUND: Final = "found: "
_MAX_SHOWN: Final = 3
_MIN_SHARE: Final = 0.01


def progress_line(progress: Progress, question: Question, *, now: datetime) -> str:
    """Say what a run has shown."""
    run, left = progress.run, progress.runs_left
    number, when = f"run {progress.runs}", ""
    if left is not None:
        number += f" of about {progress.runs + left:.0f}"
        when = f"; done about {now + timedelta(seconds=left * progress.seconds_a_run):%H:%M}"
    told = f"{quantity(run.value, question.metric.unit)}{when}" if run.value is not None else ""
    told = run.problem.splitlines()[0] if run.problem is not None else told
    return f"{number}: {question.row.name(run.setting)}: {told}"


def headline(answer: Answer) -> str:
    """Say the answer in one sentence, as the next session's explanation quotes it."""
    runs = counted(answer.runs, "run")
    if answer.found is not None:
        sure = math.floor(100 * min(answer.certainty, CLAIMED))
        return f"{FOUND}{' or '.join(one.words for one in answer.culprits)}, {sure} % sure, {runs}"
    why = "the budget is spent" if answer.is_out_of_budget else "no candidate has all of the loss"
    return f"undecided: {why} after {runs}"


def facts(answer: Answer) -> Iterator[tuple[str, str]]:
    """List what belongs to the answer, by what it is called."""
    question, levels = answer.question, answer.levels
    unit, candidates = question.metric.unit, question.row.candidates
    for one in answer.culprits:
        if one.commit is not None and one.checkout is not None:
            said = f"{one.commit.title} ({one.commit.author}, {one.commit.at[:10]})"
            yield f"commit {one.name}", said
            if merged := one.checkout.merged_by(one.commit):
                yield "a merge", f"bisect {merged}"
    if answer.found is None:
        ranked = sorted(zip(answer.probabilities, candidates, strict=True), key=lambda it: -it[0])
        shares = [f"{it.words} ({100 * p:.0f} %)" for p, it in ranked if p >= _MIN_SHARE]
        yield "suspects", ", ".join(shares[:_MAX_SHOWN])
    else:
        loss, error = answer.found.loss, 1.96 * answer.found.loss_error
        low, high = sorted(answer.change_percent(loss + side) for side in (-error, error))
        text = f"{signed_percent(answer.change_percent(loss))} (95 %: {interval((low, high))})"
        yield f"change of {question.metric.name}", f"{text} from {quantity(levels.good, unit)}"
    if question.direction(levels.good, levels.bad) is not question.metric.better:
        yield "searched for", "a gain: the bad end is better than the good one"
    yield "searched", f"{counted(len(candidates), question.kind)} since {question.row.good}"
    now = f" ({answer.runs_now} now)" if answer.runs_now < answer.runs else ""
    yield "spent", f"{counted(answer.runs, 'run')}, {numbers.duration(answer.seconds)}{now}"
    if answer.problems:
        listed = [f"{name} ({why.splitlines()[0]})" for name, why in answer.problems.items()]
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

"""What a hunt says: while it runs, and at its end as text and as Markdown."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from pytest_dlperf.culprit.hunt import Outcome, Together
from pytest_dlperf.model import numbers
from pytest_dlperf.model.numbers import counted, interval, quantity, signed_percent
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.culprit.hunting import Answer, Progress, Question

FOUND: Final = "found: "
_TOGETHER: Final = {
    Together.EACH: "each has a part",
    Together.BOTH: "only together",
    Together.EITHER: "each alone has all",
}
_MAX_SUSPECTS: Final = 3
_NONE: Final = "none of these"
_MIN_SHARE: Final = 0.01
_MAX_PROBLEMS: Final = 3
_SURE: Final = 0.999


def progress_lines(progress: Progress, question: Question, *, now: datetime) -> Iterator[str]:
    """Say what a run has shown."""
    trial, unit = progress.trial, question.metric.unit
    number = f"run {progress.runs}"
    if progress.runs_left is not None:
        number += f" of about {progress.runs + progress.runs_left:.0f}"
    name = question.named(trial.setting)
    if trial.problem is not None:
        yield f"{name}: {trial.problem.splitlines()[0]}"
    else:
        when = ""
        if progress.runs_left is not None:
            end = now + timedelta(seconds=progress.runs_left * progress.seconds_a_run)
            when = f"; done about {end:%H:%M}"
        yield f"{number}: {name}: {quantity(trial.value, unit)}{when}"


def suspects(answer: Answer) -> str:
    """Name the most probable candidates, and none of them, with how probable each is."""
    names = [one.name for one in answer.question.candidates]
    none = answer.posterior.everywhere + answer.posterior.gone
    ranked = sorted(
        zip((*answer.posterior.candidates, none), (*names, _NONE), strict=True),
        key=lambda one: -one[0],
    )
    named = [f"{name} ({100 * share:.0f} %)" for share, name in ranked if share >= _MIN_SHARE]
    return ", ".join(named[:_MAX_SUSPECTS])


def headline(answer: Answer) -> str:
    """Say the answer in one sentence, as the next night's explanation quotes it."""
    finding, question, runs = answer.finding, answer.question, counted(answer.runs, "run")
    if finding.outcome is Outcome.UNDECIDED:
        why = "what is left cannot be told apart"
        if answer.is_given_up:
            why = "given up, as levels or noise are not what they seemed,"
        elif answer.is_out_of_budget:
            why = "the budget is spent"
        return f"undecided: {why} after {runs}"
    if finding.outcome is not Outcome.NONE:
        how = f" ({_TOGETHER[finding.together]})" if finding.together is not None else ""
        text = f"{FOUND}{named(answer)}{how}"
    elif answer.everywhere:
        others = numbers.named(question.not_tried, _MAX_SUSPECTS)
        where = others or "driver, hosts and the night itself"
        text = f"none of these: {question.good.name} is as bad now: look at {where}"
    else:
        text = f"none of these: the change is gone: {question.candidates[-1].name} is good now"
    sure = finding.certainty
    certainty = "over 99.9" if sure > _SURE else math.floor(100 * sure)
    return f"{text}, {certainty} % sure, {runs}"


def named(answer: Answer) -> str:
    """Name the culprits."""
    joint = " and " if answer.finding.outcome is Outcome.PAIR else " or "
    return joint.join(one.name for one in answer.culprits)


def facts(answer: Answer) -> Iterator[tuple[str, str]]:
    """List what belongs to the answer, by what it is called."""
    finding, question, ends = answer.finding, answer.question, answer.ends
    unit = question.metric.unit
    yield from _of_culprits(answer)
    if finding.outcome is Outcome.UNDECIDED:
        yield "suspects", suspects(answer)
    if finding.loss is not None and finding.interval is not None:
        text = signed_percent(answer.change_percent(finding.loss))
        low, high = sorted(map(answer.change_percent, finding.interval))
        text += f" (95 %: {interval((low, high))}) from {quantity(ends.good, unit)}"
        yield f"change of {question.metric.name}", text
    if finding.outcome is Outcome.NONE:
        both = zip(("good end", "bad end"), (ends.good, ends.bad), answer.measured, strict=True)
        for name, then, values in both:
            now = quantity(median(values), unit) if values else "nothing"
            told = f"{now} in {counted(len(values), 'run')}"
            yield name, f"{quantity(then, unit)} before; now {told}"
    if question.direction(ends.good, ends.bad) is not question.metric.better:
        yield "searched for", "a gain: the bad end is better than the good one"
    good, bad = question.good.name, question.candidates[-1].name
    among = counted(len(question.candidates), question.kind)
    if question.kind == "difference":
        yield "tried", f"{among} from {good}"
    else:
        yield "between", f"{good} and {bad}, {among}"
    now = f" ({answer.runs_now} now)" if answer.runs_now < answer.runs else ""
    yield "spent", f"{counted(answer.runs, 'run')}, {numbers.duration(answer.seconds)}{now}"
    if answer.problems:
        listed = [f"{name} ({why.splitlines()[0]})" for name, why in answer.problems.items()]
        yield "not measured", numbers.named(listed, _MAX_PROBLEMS)


def _of_culprits(answer: Answer) -> Iterator[tuple[str, str]]:
    for one in answer.culprits:
        if one.title:
            name = f"{answer.question.kind} {one.name}"
            yield name, f"{one.title} ({one.author}, {one.at[:10]})"
        if one.merged:
            yield "a merge", f"bisect {one.merged}"


def text_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """Tell a hunt, and that of the commits it led to, for a terminal."""
    for depth, answer in enumerate(answers):
        if depth:
            yield f"in {named(answers[depth - 1])}:"
        yield f"{answer.question.case_id}: {headline(answer)}"
        yield from (f"  {name}: {value}" for name, value in facts(answer))


def markdown(answers: Sequence[Answer]) -> str:
    """Tell a hunt, and that of the commits it led to, as a comment or a page's part."""
    lines = []
    for depth, answer in enumerate(answers):
        if depth:
            lines += [f"In `{_code(named(answers[depth - 1]))}`:", ""]
        lines += [f"**{_code(answer.question.case_id)}** {_plain(headline(answer))}", ""]
        lines += [f"- {_plain(name)}: {_plain(value)}" for name, value in facts(answer)]
        lines.append("")
    return "\n".join(lines)


def _code(text: str) -> str:
    return text.replace("`", "'")


def _plain(text: str) -> str:
    """Escape what Markdown and the forges would act on: titles of commits may hold anything."""
    for one in "\\`*_{}[]<>#|!":
        text = text.replace(one, f"\\{one}")
    return text.replace("@", "@\u200b")

"""A bad night as a release manager meets it: losses with their causes, and all else at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec.structs import replace
from published_session import HOSTS as FOUR
from published_session import (
    PEAK_MEMORY,
    PLENTY,
    STEP_TIME,
    TONIGHT,
    Happening,
    published,
    with_all_else,
    year_of_nights,
)

from pytest_dlperf.history.series import CaseHistory
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    PastSession,
    Verdict,
)
from pytest_dlperf.model.results import CaseResult, Results

SLOWER: Final = "paddle-resnet50-fp32-b128-4n8g"
GREEDY: Final = "paddle-resnet50-fp32-b128-1n8g"
ALIKE: Final = tuple(f"tensorflow-bert_base-fp16-b96-xla-{n}" for n in ("1n4g", "1n8g", "4n8g"))
HAPPENINGS: Final = {
    **PLENTY,
    GREEDY: Happening(memory=1.06),
    **{case_id: Happening(factor=0.95 - 0.002 * n) for n, case_id in enumerate(ALIKE)},
}
ALGORITHM: Final = Difference(
    kind=DifferenceKind.ENVIRONMENT,
    name="NCCL_ALGO",
    accepted="-",
    last_good="-",
    now="Tree",
    came_with_it=True,
)
NCCL: Final = Difference(
    kind=DifferenceKind.SOFTWARE,
    name="nccl",
    accepted="2.21.5",
    last_good="2.22.3",
    now="2.22.3",
)
HOSTS: Final = Difference(
    kind=DifferenceKind.HOSTS,
    name="hosts",
    accepted="node1, node2, node3, node7",
    last_good="node1, node2, node3, node7",
    now="node1, node2, node3, node9",
)
XLA: Final = Difference(
    kind=DifferenceKind.COMMAND,
    name="--xla_flags",
    accepted="--xla_gpu_autotune_level=4",
    last_good="--xla_gpu_autotune_level=4",
    now="--xla_gpu_autotune_level=2",
    came_with_it=True,
)
ORIGIN: Final = {
    "commit": "1a2b3c4d5e6f",
    "commit_url": "https://git.example.org/lab/bench/commit/1a2b3c4d5e6f",
    "ci_run": "https://git.example.org/lab/bench/actions/runs/4711",
}


def past(nights_ago: int, commit: str) -> PastSession:
    """A night of the history, so many before tonight."""
    return PastSession(at=(TONIGHT - timedelta(days=nights_ago)).isoformat(), commit=commit)


def explained(since: int, *differences: Difference) -> Explanation:
    """Why a number moved so many nights ago."""
    last_good = since + 1
    return Explanation(
        since=past(since, "1a2b3c4d5e6f"),
        last_good=past(last_good, "77aa00bb11cc"),
        days=last_good,
        days_at_level=since + 1,
        differences=differences,
    )


def bad_night() -> Results:
    """Tonight: losses with a cause, three alike, more memory, a failure, a gain, hosts, drift."""
    results = with_all_else(published(HAPPENINGS, declared=(PEAK_MEMORY, STEP_TIME)))
    return replace(
        results,
        environment={**results.environment, **ORIGIN},
        cases=tuple(map(_explained, results.cases)),
    )


def nights_of(results: Results) -> dict[str, dict[str, CaseHistory]]:
    """A year of its nights, those since a loss at tonight's level."""
    histories = year_of_nights(results)
    for result in results.cases:
        for name, explanation in result.explanations.items():
            known, since = histories.get(result.case.id, {}).get(name), explanation.since
            good = explanation.last_good
            if known is None or since is None or good is None:
                continue
            level, word = known.points[-1].median, known.points[-1].verdict_word
            low, high = level * 0.996, level * 1.004
            nights = (
                night._replace(median=level, lowest=low, highest=high, verdict_word=word)
                if night.started >= since.at
                else night
                for night in known.points
                if night.started <= good.at or night.started >= since.at
            )
            histories[result.case.id][name] = replace(known, points=tuple(nights))
    return histories


def _explained(result: CaseResult) -> CaseResult:
    if result.case.id in ALIKE:
        why = explained(0, XLA)
    elif result.case.id.startswith("paddle-resnet50-fp32-b128"):
        hosts = [HOSTS] if result.case.topology.nodes == len(FOUR) else []
        why = explained(3, ALGORITHM, *hosts, NCCL)
    else:
        why = explained(9)
    passed = (Verdict.PASS, Verdict.NO_BASELINE, Verdict.SKIPPED)
    accepted = {
        name: replace(one, acceptance=replace(one.acceptance, by="Ana Perez <ana@example.org>"))
        if one.acceptance
        else one
        for name, one in result.accepted.items()
    }
    return replace(
        result,
        accepted=accepted,
        explanations={
            name: why for name, j in result.judgements.items() if j.verdict not in passed
        },
    )

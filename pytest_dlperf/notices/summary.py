"""A session as a notice: its words are the ten-second text, its data what a program is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pytest_dlperf.night.case_status import (
    counts,
    metric_words,
    status_of,
    worst_first,
)
from pytest_dlperf.night.pieces import phrase
from pytest_dlperf.night.texts import address
from pytest_dlperf.notices.brief import brief_of
from pytest_dlperf.notices.notice import Block, Notice
from pytest_dlperf.notices.posting import clipped
from pytest_dlperf.reports.markdown_text import inline
from pytest_dlperf.results.file import metric_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.judgement import Explanation
    from pytest_dlperf.model.results import CaseResult
    from pytest_dlperf.night.night import Night

_MOST_CASES: Final = 200
_MOST_DIFFERENCES: Final = 20
_LONGEST_VALUE: Final = 500
_FORM: Final = 1


def notice_of(
    night: Night,
    *,
    faults: Sequence[str] = (),
    is_due: bool = True,
    page: str | None = None,
) -> Notice:
    """Put a session into words.

    ``faults`` are what else made it fail, such as a report that could not be written; ``page`` is
    where the page lies.
    """
    brief = brief_of(night, page=page)
    return Notice(
        subject=brief.subject,
        blocks=(*brief.blocks, *(Block((phrase("{}", fault),)) for fault in faults)),
        markdown="\n\n".join([brief.markdown.rstrip(), *map(inline, faults)]),
        cluster=night.results.cluster,
        is_red=night.is_red or bool(faults),
        is_due=is_due,
        ci_run=address(night.results.origin.ci_run),
        night=night,
    )


def notice_data(notice: Notice) -> dict[str, Any]:
    """Make the data of ``json``: docs/notices.md lists them."""
    data: dict[str, Any] = {
        "schema": _FORM,
        "subject": notice.subject,
        "text": notice.text,
        "markdown": notice.markdown,
        "red": notice.is_red,
        "cluster": notice.cluster,
        "ci_run": notice.ci_run,
        "session": None,
    }
    if notice.night is None:
        return data
    results = notice.night.results
    cases = [case for case in worst_first(results.cases) if not status_of(case).is_good]
    return {
        **data,
        "session": {
            "id": results.session,
            "estimator": results.estimator.value,
            "started": results.started,
            "ended": results.ended,
            "interrupted": results.interrupted,
            "strict": results.strict,
            "commit": results.origin.commit,
            "counts": {status.value: count for status, count in counts(results.cases).items()},
        },
        "cases": [_case(case) for case in cases[:_MOST_CASES]],
        "more_cases": max(len(cases) - _MOST_CASES, 0),
    }


def _case(result: CaseResult) -> dict[str, Any]:
    words = metric_words(result)
    return {
        "id": result.case.id,
        "status": status_of(result).value,
        "metrics": {
            name: {
                **metric_entry(known),
                "verdict": words[name][0],
                "explanation": _explanation(known.explanation),
            }
            for name, known in result.metrics().items()
            if name in words and not words[name][1].is_good
        },
    }


def _explanation(explanation: Explanation | None) -> dict[str, Any] | None:
    """Give the most suspicious differences alone: a service takes no message of megabytes."""
    if explanation is None:
        return None
    suspicious = explanation.differences[:_MOST_DIFFERENCES]
    data: dict[str, Any] = to_builtins(replace(explanation, differences=suspicious))
    data["differences"] = [
        {key: clipped(it, _LONGEST_VALUE) if isinstance(it, str) else it for key, it in one.items()}
        for one in data["differences"]
    ]
    return data | {"more_differences": len(explanation.differences) - len(suspicious)}

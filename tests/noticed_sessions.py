"""Sessions that notices are made of, with texts that no service may take for more than text."""

from __future__ import annotations

import re

import results_makers as make
from msgspec.structs import replace

from pytest_dlperf.model.judgement import Explanation, PastSession, Verdict
from pytest_dlperf.model.results import Results

SECRET = "T024-hook-SeCrEt"  # noqa: S105 - that of these tests
CASE, SECOND = "paddle-resnet50-fp32-b128-1n8g", "paddle-resnet50-fp32-b128-4n8g"
HOSTILE = (
    "<!channel> @everyone @here <@U1> </pre><script>alert(1)</script> [x](javascript:alert(1)) "
    "<at>all</at> `code` *bold* <https://evil.example|click> \x1b[2J\ud800"
)
MARKUP = re.compile(r"@\w|(?<!\\)\]\(|<script|<!channel")
"""What would mention, link or be HTML in Markdown, outside of code."""


def without_code(markdown: str) -> str:
    """Leave out what stands between backquotes."""
    return re.sub(r"(`+)(?:(?!\1).)*\1", "", markdown)


def red(reason: str = "the log has ended", **environment: str) -> Results:
    """A session with a loss, and a case that failed for this reason."""
    explanation = Explanation(
        since=PastSession(at=make.STARTED, commit="abcdef1234567"), days_at_level=1
    )
    slow = make.measured_case(CASE, 901.0, 901.0, verdict=Verdict.REGRESSED, baseline=1000.0)
    slow = replace(slow, explanations={"throughput": explanation})
    failed = make.unmeasured_case(SECOND, Verdict.FAILED, reason)
    results = make.session(slow, failed, cluster="lab")
    return replace(results, environment={**results.environment, **environment})


def green() -> Results:
    """A session in which nothing happened."""
    return make.session(make.measured_case(CASE, 1000.0, 1001.0), cluster="lab")

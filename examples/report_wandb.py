"""Log a session to Weights & Biases as one run: python -m pytest bench_tests -p report_wandb.

The environment says who and where: WANDB_API_KEY, WANDB_ENTITY, WANDB_MODE=offline. Numbers of a
case with a broken run are left out; its verdicts are in the run's summary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.report.reports import Note, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.report.session import SessionReport


def log_run(session: SessionReport) -> Iterator[Note]:
    """Log what was measured whole; metrics are ``<case>/<metric>``."""
    import wandb

    from pytest_dlperf.report.openmetrics import session_numbers

    results = session.results
    config = {"session": results.session, "commit": results.origin.commit}
    run = wandb.init(project="dlperf", group=results.cluster, name=results.started, config=config)
    numbers = {f"{one.case_id}/{one.metric}": one for one in session_numbers(results)}
    run.log({name: one.value for name, one in numbers.items() if one.value is not None})
    verdicts = {f"{name}.verdict": one.verdict for name, one in numbers.items() if one.verdict}
    run.summary.update(verdicts)
    run.finish(exit_code=int(session.is_red))
    yield Note(f"W&B run: {run.project}, {run.name}")


def pytest_dlperf_reports() -> list[Report]:
    """Add the report."""
    # A service that is down makes no session red.
    return [Report("W&B run", log_run, is_required=False)]

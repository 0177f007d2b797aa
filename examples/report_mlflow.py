"""Log a session to MLflow, a run per case: python -m pytest bench_tests -p report_mlflow.

MLFLOW_TRACKING_URI names the server. A case whose judged number is missing is a failed run.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from pytest_dlperf.report.reports import Note, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.report.session import SessionReport


def log_runs(session: SessionReport) -> Iterator[Note]:
    """Log what was measured whole: metrics are medians, verdicts are tags."""
    import mlflow

    from pytest_dlperf.report.openmetrics import session_numbers

    results = session.results
    mlflow.set_experiment(f"dlperf-{results.cluster}")
    for case_id, found in groupby(session_numbers(results), lambda one: one.case_id):
        numbers = list(found)
        mlflow.start_run(run_name=case_id)
        mlflow.set_tags({"session": results.session, "commit": results.origin.commit or ""})
        mlflow.set_tags({f"verdict.{one.metric}": one.verdict for one in numbers if one.verdict})
        mlflow.log_metrics({one.metric: one.value for one in numbers if one.value is not None})
        judged = [one.value for one in numbers if one.verdict]
        mlflow.end_run("FINISHED" if judged and None not in judged else "FAILED")
        yield Note(f"MLflow run: {case_id}")


def pytest_dlperf_reports() -> list[Report]:
    """Add the report."""
    # A server that is down makes no session red.
    return [Report("MLflow runs", log_runs, is_required=False)]

"""The message of a test that fails: the verdict first, then the numbers, then the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.gate.verdict import Quantity, Verdict
from pytest_dlperf.measurement import RunStatus
from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.gate.verdict import Judgement
    from pytest_dlperf.measurement import Measurement, Run


def failure_message(
    judgement: Judgement,
    measurement: Measurement,
    single_device: Measurement | None,
    *,
    cluster: str,
    other_clusters: Sequence[str],
) -> str:
    """All that a reader needs to act on a verdict, without ``-vv`` and without other files."""
    subject = f"{judgement.verdict.value}: {judgement.quantity.value} of {measurement.case_id}"
    lines = [subject]
    if judgement.reason:
        lines.append(f"  reason     {numbers.in_full(judgement.reason, 15)}")
    lines += _comparison(judgement, measurement, cluster, other_clusters)
    for measured in filter(None, (measurement, single_device)):
        lines += _runs(measured, told=judgement.reason or "")
    return "\n".join(lines)


def _comparison(
    judgement: Judgement, measurement: Measurement, cluster: str, other_clusters: Sequence[str]
) -> Iterator[str]:
    written = numbers.throughput if judgement.quantity is Quantity.THROUGHPUT else numbers.speedup
    unit = f" {measurement.unit}" if judgement.quantity is Quantity.THROUGHPUT else "x"
    if judgement.measured is not None:
        yield f"  measured   {written(judgement.measured)}{unit} ({measurement.estimator.value})"
    if judgement.baseline is not None:
        yield (
            f"  baseline   {written(judgement.baseline)}{unit} of cluster {cluster}: "
            f"{numbers.signed_percent(judgement.difference_percent)}, "
            f"tolerance {judgement.tolerance_percent:g} %"
        )
    elif judgement.verdict is Verdict.NO_BASELINE and judgement.reason is None:
        yield (
            f"  baseline   cluster {cluster} has none for this case; "
            "--dlperf-create-baselines records what is measured and passes"
        )
        if other_clusters:
            yield (
                f"             clusters with numbers of this system: {', '.join(other_clusters)} "
                "(--dlperf-cluster)"
            )


def _runs(measurement: Measurement, *, told: str) -> Iterator[str]:
    """The runs with their logs; a reason that was told above is not told again."""
    yield (
        f"  {measurement.case_id}: median {numbers.throughput(measurement.median)}, "
        f"mean {numbers.throughput(measurement.mean)} {measurement.unit}, "
        f"spread {numbers.spread(measurement.spread)}"
    )
    for run in measurement.runs:
        for number, attempt in enumerate(run.failed_attempts, start=1):
            yield _run(f"run {run.run}, attempt {number}", attempt, told=told)
        yield _run(f"run {run.run}", run, told=told)


def _run(name: str, run: Run, *, told: str) -> str:
    ok = run.status is RunStatus.OK
    found = numbers.throughput(run.throughput) if ok else run.status.value
    new = run.reason and run.reason not in told
    reason = f" ({numbers.in_short(run.reason or '')})" if new else ""
    return f"    {name}: {found}{reason}  {numbers.printable(run.log or '')}"

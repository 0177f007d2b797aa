"""A session of all published cases and a year of nights, made up from their baselines."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.gate.verdicts import decide
from pytest_dlperf.history.series import AcceptedChange, CaseHistory, ChangePoint, Drift, Point
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession, Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import (
    Estimator,
    Fingerprint,
    InterleavedRuns,
    Measurement,
    Run,
    RunStatus,
)
from pytest_dlperf.model.metric import (
    SPEEDUP,
    SPEEDUP_METRIC,
    THROUGHPUT,
    Better,
    Metric,
    Source,
    throughput,
)
from pytest_dlperf.model.results import (
    BaselineChange,
    CaseResult,
    IgnoredLog,
    MetricResult,
    Results,
    with_measurements,
)

ROOT: Final = Path(__file__).parent.parent
TONIGHT: Final = datetime(2026, 11, 20, 2, 0, tzinfo=UTC)
TOLERANCE: Final = 5.0
MACHINE: Final = {
    "device": "Tesla V100-SXM2-16GB",
    "devices_per_node": "8",
    "interconnect": "nvlink",
    "network": "infiniband",
}
PEAK_MEMORY: Final = Metric(
    name="peak_memory", unit="MB", better=Better.LOWER, source=Source.LOG, tolerance_percent=2.0
)
STEP_TIME: Final = Metric(
    name="step_time_p50", unit="ms", better=Better.LOWER, source=Source.STEPS, is_judged=False
)
MEMORY_MB: Final = 14_212.0
SOFTWARE: Final = {"driver": "535.161.08", "cuda": "12.2", "cudnn": "8.9.7", "nccl": "2.21.5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What is odd about one case tonight; by itself, nothing is."""

    factor: float = 1.0
    memory: float = 1.0
    broken: RunStatus | None = None
    reason: str | None = None
    is_skipped: bool = False
    is_lost: bool = False
    without_baseline: bool = False
    interleaved: bool = False
    software: Mapping[str, str] = field(default_factory=dict)


HOSTS: Final = ("node1", "node2", "node3", "node9")
"""Tonight's; ``node7``, the usual fourth one, is unfit (``with_all_else``)."""
PLENTY: Final = {
    "paddle-resnet50-fp32-b128-4n8g": Happening(factor=0.936, software={"nccl": "2.22.3"}),
    "paddle-resnet50-fp32-b128-2n8g": Happening(factor=0.957, software={"nccl": "2.22.3"}),
    "tensorflow-bert_base-fp16-b96-2n8g": Happening(
        broken=RunStatus.INVALID,
        reason="step 84 is missing between the last step of the warm-up and the end of the window",
    ),
    "tensorflow-bert_base-fp32-b48-4n8g": Happening(
        broken=RunStatus.FAILED,
        reason="node 2 ended with exit code 1 before the window was complete",
    ),
    "paddle-arcface_r50-fp32-b128-4n8g": Happening(is_skipped=True),
    "ngc_pytorch-resnet50-fp32-b128-1n8g": Happening(factor=1.058),
    "pytorch-resnet50-fp32-b128-workers8-1n4g": Happening(without_baseline=True),
    "paddle-resnet50-fp16-b224-1n8g": Happening(factor=0.93, interleaved=True),
    "pytorch-resnet50-fp32-b128-dali+workers48-2n8g": Happening(is_lost=True),
}


def published(
    happenings: Mapping[str, Happening],
    *,
    logs: Path = Path("/logs"),
    declared: tuple[Metric, ...] = (),
) -> Results:
    """A session of all published cases; the runs differ as those of the benchmark did.

    ``declared`` are metrics beside throughput and speedup: ``PEAK_MEMORY`` and ``STEP_TIME``.
    """
    cluster = find_cluster(ROOT / "baselines", "dlperf-v100")
    draw = random.Random(115)  # noqa: S311 - noise
    measured: dict[str, Measurement] = {}
    baselines: dict[str, dict[str, Baseline]] = {}
    metrics = {}
    for system in sorted(cluster.systems or ()):
        for (variant, topology), entry in load_baselines(cluster, system).items():
            case = Case.from_id(f"{system}-{variant}-{topology}")
            happening = happenings.get(case.id, Happening())
            work = throughput(entry[THROUGHPUT].unit)
            metrics[system] = (work, SPEEDUP_METRIC, *declared)
            noise = draw.choice((0.0015, 0.0025, 0.004, 0.004, 0.009))
            baselines[case.id] = _settled(entry, draw, noise)
            if not happening.is_skipped:
                level = entry[THROUGHPUT].accepted * happening.factor
                numbers = [round(level * draw.gauss(1, noise), 2) for _ in range(5)]
                measured[case.id] = _measured(case, (work, *declared), numbers, happening, logs)
    results = [
        _result(Case.from_id(case_id), measured, baselines, happenings.get(case_id, Happening()))
        for case_id in baselines
    ]
    return Results(
        session="5f1c2a9e-7b1d-4a7e-9a43-0d6f6f1f8a11",
        cluster=cluster.name,
        estimator=Estimator.PUBLISHED,
        started=TONIGHT.isoformat(),
        ended=(TONIGHT + timedelta(hours=5, minutes=42, seconds=7)).isoformat(),
        environment={
            "host": "head01",
            "platform": "Linux-6.1.0-28-amd64-x86_64-with-glibc2.36",
            "processors": 64,
            "python": "3.11.7",
            "packages": {"pytest-dlperf": "0.1.0", "pytest": "8.3.4", "torch": None},
        },
        metrics=metrics,
        cases=tuple(results),
    )


def with_all_else(results: Results) -> Results:
    """The same session with hosts that are unfit, logs left out and a baseline accepted."""
    return replace(
        results,
        unfit_hosts={"node7": ("GPU 3 has 12 uncorrected memory errors", "2 of 8 links are down")},
        ignored_logs=(
            IgnoredLog("/logs/pytorch/r50_b128_fp32_7_9.log", "the name fits no case"),
            IgnoredLog("/logs/pytorch/old/r50_b128_fp32_1.log", "no topology above it"),
        ),
        baseline_changes=(
            BaselineChange(
                case_id="paddle-resnet50-fp16-b224-4n8g",
                metric="throughput",
                unit="images/s",
                old=10320.5,
                new=10633.22,
                why="NCCL 2.21 with tree all-reduce",
            ),
        ),
    )


def _settled(
    entry: Mapping[str, Baseline], draw: random.Random, noise: float
) -> dict[str, Baseline]:
    """The published numbers, that of the throughput with six accepted sessions behind it."""
    work = entry[THROUGHPUT]
    sessions = [
        tuple(round(work.accepted * draw.gauss(1, noise), 2) for _ in range(5)) for _ in range(6)
    ]
    accepted, *later = sessions
    acceptance = Acceptance(
        at=(TONIGHT - timedelta(days=40)).isoformat(),
        commit="9f2c4e1ab370",
        reason="new driver 535.161.08",
        software=SOFTWARE,
    )
    settled = {
        name: replace(one, machine=MACHINE, acceptance=acceptance) for name, one in entry.items()
    }
    settled[THROUGHPUT] = replace(
        settled[THROUGHPUT],
        runs=dict(enumerate(accepted, 1)),
        sessions=tuple(
            AcceptedSession(at=(TONIGHT - timedelta(days=10 - n)).isoformat(), runs=session)
            for n, session in enumerate(later)
        ),
    )
    settled[PEAK_MEMORY.name] = replace(
        settled[THROUGHPUT],
        metric=PEAK_MEMORY.name,
        unit=PEAK_MEMORY.unit,
        better=Better.LOWER,
        accepted=MEMORY_MB,
        runs=dict.fromkeys(range(1, 6), MEMORY_MB),
        sessions=(),
    )
    return settled


def _measured(
    case: Case,
    metrics: tuple[Metric, ...],
    throughputs: list[float],
    happening: Happening,
    logs: Path,
) -> Measurement:
    folder = logs / case.system / str(case.topology)
    names = {metric.name for metric in metrics}
    found = []
    for number, value in enumerate(throughputs, 1):
        known = {
            THROUGHPUT: value,
            PEAK_MEMORY.name: MEMORY_MB * happening.memory,
            STEP_TIME.name: 1000 * case.global_batch / value,
        }
        found.append(
            Run(
                run=number,
                metrics={name: one for name, one in known.items() if name in names},
                status=RunStatus.OK,
                log=str(folder / f"r50_b{case.batch_per_replica}_{case.precision}_{number}.log"),
                steps=100,
            )
        )
    if happening.broken is not None:
        last = replace(
            found[2], metrics={}, status=happening.broken, reason=happening.reason, steps=61
        )
        found = [*found[:2], last]
    return Measurement(
        case_id=case.id,
        metrics=metrics,
        estimator=Estimator.PUBLISHED,
        runs=tuple(found),
        fingerprint=Fingerprint(
            machine=MACHINE,
            software={**SOFTWARE, **happening.software},
            hosts=HOSTS[: case.topology.nodes],
        ),
    )


def _result(
    case: Case,
    measured: Mapping[str, Measurement],
    baselines: Mapping[str, Mapping[str, Baseline]],
    happening: Happening,
) -> CaseResult:
    measurement = measured.get(case.id)
    over = measured.get(case.reference.id) if case.reference else None
    known = {} if happening.without_baseline else baselines[case.id]
    result = CaseResult(
        case=case,
        measurement=measurement,
        is_whole=not happening.is_lost,
        accepted=known,
    )
    if measurement is None:
        skipped = Judgement(
            metric=throughput(known[THROUGHPUT].unit),
            verdict=Verdict.SKIPPED,
            reason="unconditional skip: its data are being moved",
        )
        return replace(result, judgements={THROUGHPUT: skipped})
    end = MeasuredCase(measurement, known)
    terms = Terms(tolerance_percent=TOLERANCE)
    judgements = {
        metric.name: decide(GateInput(metric, end, _terms(metric)))
        for metric in measurement.metrics
        if metric.is_judged
    }
    if happening.interleaved:
        both = InterleavedRuns(candidate=measurement, control=_slower(measurement))
        judged = replace(
            judgements[THROUGHPUT],
            verdict=Verdict.ENVIRONMENT_SHIFT,
            reason="the accepted software is as slow tonight on the same hosts",
        )
        judgements[THROUGHPUT] = judged
        result = replace(result, interleaved=both)
    elif over is not None and case.is_scaled:
        reference = MeasuredCase(over, baselines[over.case_id])
        judgements[SPEEDUP] = decide(GateInput(SPEEDUP_METRIC, end, terms, reference))
    return with_measurements(replace(result, judgements=judgements), measured)


def _terms(metric: Metric) -> Terms:
    return Terms(tolerance_percent=metric.tolerance_percent or TOLERANCE)


def _slower(measurement: Measurement) -> Measurement:
    runs = [
        replace(run, metrics={THROUGHPUT: run.metrics.get(THROUGHPUT, 0) * 1.003})
        for run in measurement.runs
    ]
    return replace(measurement, runs=tuple(runs))


def year_of_nights(results: Results, nights: int = 365) -> dict[str, dict[str, CaseHistory]]:
    """The nights of each judged metric until this session, with all that a history can hold."""
    draw = random.Random(365)  # noqa: S311 - noise
    found: dict[str, dict[str, CaseHistory]] = {}
    for number, result in enumerate(results.cases):
        kind = ("level", "stepped", "drifting")[0 if number % 7 else 1 + number % 2]
        for name, known in result.metrics().items():
            is_steady = known.metric.source is Source.LOG
            if known.metric.is_judged and known.accepted is not None and known.median is not None:
                history = _nights(result, known, "level" if is_steady else kind, nights, draw)
                found.setdefault(result.case.id, {})[name] = history
    return found


def _nights(
    result: CaseResult, known: MetricResult, kind: str, nights: int, draw: random.Random
) -> CaseHistory:
    metric, accepted, tonight = known.metric, known.accepted, known.median
    assert metric.better is not None
    assert accepted is not None
    assert tonight is not None
    level = accepted.accepted
    step = int(nights * 0.6)
    points = []
    for night in range(nights):
        at = TONIGHT - timedelta(days=nights - 1 - night)
        before = 1 - 0.045 * metric.better.sign if kind == "stepped" and night < step else 1.0
        crept = 0.00025 * max(0, night - step) if kind == "drifting" else 0.0
        noise = 0.0 if metric.source is Source.LOG else draw.gauss(0, 0.003)
        median = level * before * (1 - crept * metric.better.sign) * (1 + noise)
        # A ratio has no runs of its own, and allocated memory is alike in all runs.
        deviation = abs(draw.gauss(0, 0.005)) if metric.source is Source.STEPS else 0.0
        strays = metric.source is Source.STEPS and draw.random() < 0.01
        points.append(
            Point(
                started=at.isoformat(),
                began=at.timestamp(),
                median=median,
                lowest=median * (1 - deviation) * (0.6 if strays else 1),
                highest=median * (1 + deviation),
                runs=5,
                accepted=level * before,
                verdict_word="regressed" if noise and draw.random() < 0.01 else "pass",
            )
        )
    runs = result.measurement.runs if result.measurement is not None else ()
    values = [run.metrics[metric.name] for run in runs if metric.name in run.metrics]
    points[-1] = points[-1]._replace(
        median=tonight,
        lowest=min(values, default=tonight),
        highest=max(values, default=tonight),
        verdict_word=known.judgement.verdict.value if known.judgement else None,
    )
    at_step, before = (points[step].started, level * (1 - 0.045 * metric.better.sign))
    is_stepped, is_drifting = kind == "stepped", kind == "drifting"
    accepted_then = AcceptedChange(
        at=at_step, old=before, new=level, why="cuDNN 8.9 <fused> kernels"
    )
    change = ChangePoint(index=step, previous=step - 1, at=at_step, before=before, after=level)
    drift = Drift(
        since=at_step,
        days=nights - step,
        percent=-3.4 * metric.better.sign,
        percent_per_week=-0.17 * metric.better.sign,
    )
    return CaseHistory(
        case_id=result.case.id,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        points=tuple(points),
        accepted=(accepted_then,) if is_stepped else (),
        change_points=(change,) if is_stepped else (),
        drift=drift if is_drifting else None,
        noise_percent=0.42 if metric.source is Source.STEPS else 0.0,
    )

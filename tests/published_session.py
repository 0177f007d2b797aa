"""A session of all published cases and a year of nights, made up from their baselines."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gate_values import judge_speedup, judge_throughput

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.history.series import AcceptedChange, CaseHistory, ChangePoint, Drift, Night
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession, Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.measurement import (
    Estimator,
    Fingerprint,
    InterleavedRuns,
    Measurement,
    Run,
    RunStatus,
)
from pytest_dlperf.model.records import AcceptedNumbers, CaseResult, with_measurements
from pytest_dlperf.model.results import BaselineChange, IgnoredLog, Results

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parent.parent
TONIGHT: Final = datetime(2026, 11, 20, 2, 0, tzinfo=timezone.utc)
TOLERANCE: Final = 5.0
MACHINE: Final = {
    "device": "Tesla V100-SXM2-16GB",
    "devices_per_node": "8",
    "interconnect": "nvlink",
    "network": "infiniband",
}
SOFTWARE: Final = {"driver": "535.161.08", "cuda": "12.2", "cudnn": "8.9.7", "nccl": "2.21.5"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What is odd about one case tonight; by itself, nothing is."""

    factor: float = 1.0
    broken: RunStatus | None = None
    reason: str | None = None
    is_skipped: bool = False
    is_lost: bool = False
    without_baseline: bool = False
    interleaved: bool = False
    software: Mapping[str, str] = field(default_factory=dict)


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
    happenings: Mapping[str, Happening], *, logs: Path = Path("/logs"), runs: int = 5
) -> Results:
    """A session of all published cases; the runs differ as those of the benchmark did."""
    cluster = find_cluster(ROOT / "baselines", "dlperf-v100", local="local")
    draw = random.Random(115)  # noqa: S311 - noise
    measured: dict[str, Measurement] = {}
    baselines: dict[str, Baseline] = {}
    units = {}
    for system in sorted(cluster.systems or ()):
        for (variant, topology), entry in load_baselines(cluster, system).items():
            case = Case.parse(f"{system}-{variant}-{topology}")
            happening = happenings.get(case.id, Happening())
            units[system] = entry.unit
            noise = draw.choice((0.0015, 0.0025, 0.004, 0.004, 0.009))
            baselines[case.id] = _settled(entry, draw, noise)
            if not happening.is_skipped:
                measured[case.id] = _measured(case, entry, draw, noise, happening, logs, runs)
    results = [
        _result(Case.parse(case_id), measured, baselines, happenings.get(case_id, Happening()))
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
            "load_average": [1.2, 0.9, 0.4],
            "python": "3.11.7",
            "packages": {"pytest-dlperf": "0.1.0", "pytest": "8.3.4", "torch": None},
        },
        units=units,
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
                quantity="throughput",
                unit="images/s",
                old=10320.5,
                new=10633.22,
                why="NCCL 2.21 with tree all-reduce",
            ),
        ),
    )


def _settled(entry: Baseline, draw: random.Random, noise: float) -> Baseline:
    """The published number with six accepted sessions behind it."""
    sessions = [
        tuple(round(entry.throughput * draw.gauss(1, noise), 2) for _ in range(5)) for _ in range(6)
    ]
    accepted, *later = sessions
    return replace(
        entry,
        runs=dict(enumerate(accepted, 1)),
        sessions=tuple(
            AcceptedSession(at=(TONIGHT - timedelta(days=10 - n)).isoformat(), runs=session)
            for n, session in enumerate(later)
        ),
        machine=MACHINE,
        accepted=Acceptance(
            at=(TONIGHT - timedelta(days=40)).isoformat(),
            commit="9f2c4e1ab370",
            reason="new driver 535.161.08",
            software=SOFTWARE,
        ),
    )


def _measured(  # noqa: PLR0913, PLR0917 - all that a measurement is drawn from
    case: Case,
    entry: Baseline,
    draw: random.Random,
    noise: float,
    happening: Happening,
    logs: Path,
    runs: int,
) -> Measurement:
    folder = logs / case.system / str(case.topology)
    found = [
        Run(
            run=number,
            throughput=round(entry.throughput * happening.factor * draw.gauss(1, noise), 2),
            status=RunStatus.OK,
            log=str(folder / f"r50_b{case.batch_per_device}_{case.precision}_{number}.log"),
            steps=100,
        )
        for number in range(1, runs + 1)
    ]
    if happening.broken is not None:
        last = replace(
            found[2], throughput=None, status=happening.broken, reason=happening.reason, steps=61
        )
        found = [*found[:2], last]
    return Measurement(
        case_id=case.id,
        unit=entry.unit,
        estimator=Estimator.PUBLISHED,
        runs=tuple(found),
        fingerprint=Fingerprint(
            machine=MACHINE,
            software={**SOFTWARE, **happening.software},
            hosts=tuple(f"node{n}" for n in range(1, case.topology.nodes + 1)),
        ),
    )


def _result(
    case: Case,
    measured: Mapping[str, Measurement],
    baselines: Mapping[str, Baseline],
    happening: Happening,
) -> CaseResult:
    measurement, single = measured.get(case.id), measured.get(case.single_device.id)
    baseline = None if happening.without_baseline else baselines[case.id]
    result = CaseResult(
        case=case,
        measurement=measurement,
        single_device=single,
        is_whole=not happening.is_lost,
        accepted=AcceptedNumbers.of(baseline) if baseline else None,
    )
    if measurement is None:
        skipped = Judgement(
            quantity=Quantity.THROUGHPUT,
            verdict=Verdict.SKIPPED,
            reason="it needs 4 hosts of 8 devices, and 3 are there; --dlperf-hosts names more",
        )
        return replace(result, judgements={Quantity.THROUGHPUT: skipped})
    judged = judge_throughput(measurement, baseline, tolerance_percent=TOLERANCE)
    if happening.interleaved:
        control = [
            replace(run, throughput=(run.throughput or 0) * 1.003) for run in measurement.runs
        ]
        both = InterleavedRuns(
            candidate=measurement, control=replace(measurement, runs=tuple(control))
        )
        judged = replace(
            judged,
            verdict=Verdict.ENVIRONMENT_SHIFT,
            reason="the accepted software is as slow tonight on the same hosts",
        )
        result = replace(result, interleaved=both)
    judgements = {Quantity.THROUGHPUT: judged}
    if single is not None and not happening.interleaved:
        judgements[Quantity.SPEEDUP] = judge_speedup(
            measurement,
            single,
            baseline,
            baselines[case.single_device.id],
            tolerance_percent=TOLERANCE,
        )
    return with_measurements(replace(result, judgements=judgements), measured)


def year_of_nights(results: Results, nights: int = 365) -> dict[str, CaseHistory]:
    """The nights of each measured case until this session, with all that a history can hold."""
    draw = random.Random(365)  # noqa: S311 - noise
    found = {}
    for number, result in enumerate(results.cases):
        measured = result.measurement
        if measured is None or measured.median is None or result.accepted is None:
            continue
        kind = ("level", "stepped", "drifting")[0 if number % 7 else 1 + number % 2]
        found[result.case.id] = _nights(result, measured, kind, nights, draw)
    return found


def _nights(
    result: CaseResult, measured: Measurement, kind: str, nights: int, draw: random.Random
) -> CaseHistory:
    level = result.accepted.throughput if result.accepted else measured.median or 1.0
    step = int(nights * 0.6)
    points = []
    for night in range(nights):
        at = TONIGHT - timedelta(days=nights - 1 - night)
        before = 0.955 if kind == "stepped" and night < step else 1.0
        crept = 1 - 0.00025 * max(0, night - step) if kind == "drifting" else 1.0
        tonight = level * before * crept * draw.gauss(1, 0.003)
        deviation = abs(draw.gauss(0, 0.005))
        strays = draw.random() < 0.01
        points.append(
            Night(
                started=at.isoformat(),
                began=at.timestamp(),
                median=tonight,
                slowest=tonight * (1 - deviation) * (0.6 if strays else 1),
                fastest=tonight * (1 + deviation),
                runs=5,
                accepted=level * before,
                verdict_word="regressed" if draw.random() < 0.01 else "pass",
            )
        )
    medians = measured.throughputs
    judged = result.judgements[Quantity.THROUGHPUT]
    points[-1] = points[-1]._replace(
        median=measured.median or level,
        slowest=min(medians),
        fastest=max(medians),
        verdict_word=judged.verdict.value,
    )
    at_step = points[step].started if kind == "stepped" else ""
    return CaseHistory(
        case_id=result.case.id,
        unit=measured.unit,
        nights=tuple(points),
        accepted=(
            AcceptedChange(
                at=at_step, old=level * 0.955, new=level, why="cuDNN 8.9 <fused> kernels"
            ),
        )
        if at_step
        else (),
        change_points=(
            ChangePoint(index=step, at=at_step, before=level * 0.955, after=level, p_value=3.2e-9),
        )
        if at_step
        else (),
        drift=Drift(
            since=points[step].started, nights=nights - step, percent=-3.4, percent_per_week=-0.17
        )
        if kind == "drifting"
        else None,
        run_noise_percent=0.42,
        night_noise_percent=0.31,
    )

"""Ranks of one training that say different things of the same steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import log_makers as make
import pytest

from pytest_dlperf.formats.log_format import LogFormat, custom_format
from pytest_dlperf.model.measurement import Run, RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeAlias

    Measure: TypeAlias = Callable[[Path, Sequence[Sequence[float]]], Run]

LABEL = r"rank (?P<rank>\d) "


def _format(record: str, *, labelled: bool) -> LogFormat:
    label = LABEL if labelled else r"rank \d "
    return custom_format("mine", record=label + record, ranks="local")


def _lines(ranks: Sequence[Sequence[float]], line: str) -> str:
    return "".join(
        f"rank {rank} "
        + line.format(k=k, t=times[k - 1], r=256 / times[k - 1], at=math.fsum(times[:k]))
        + "\n"
        for k in range(1, len(ranks[0]) + 1)
        for rank, times in enumerate(ranks)
    )


def _declared(record: str, line: str, *, labelled: bool) -> Measure:
    log_format = _format(record, labelled=labelled)

    def measure(path: Path, ranks: Sequence[Sequence[float]]) -> Run:
        return make.measured(path, _lines(ranks, line), log_format, of=make.case("1n2g"))

    return measure


KINDS: dict[str, Measure] = {
    "dlperf": lambda path, ranks: make.measured(
        path, make.dlperf(ranks), "dlperf", of=make.case("1n2g")
    ),
    "pytorch_imagenet": lambda path, ranks: make.measured(
        path, make.pytorch_imagenet(ranks), "pytorch_imagenet", of=make.case("1n2g")
    ),
    **{
        f"{kind}, {'labelled' if labelled else 'unlabelled'}": _declared(
            record, line, labelled=labelled
        )
        for kind, record, line in (
            ("seconds", r"it (?P<step>\d+) (?P<seconds>[\d.]+)", "it {k} {t:.4f}"),
            ("speeds", r"it (?P<step>\d+) (?P<samples_per_second>[\d.]+)", "it {k} {r:.4f}"),
            ("stamps", r"it (?P<step>\d+) (?P<timestamp>[\d.]+)", "it {k} {at:.4f}"),
        )
        for labelled in (False, True)
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_agree(tmp_path: Path, kind: str) -> None:
    run = KINDS[kind](tmp_path, [[0.5] * 150, [0.51] * 150])
    assert (run.status, run.reason) == (RunStatus.OK, None)
    assert run.metrics["throughput"] == pytest.approx(512, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_differ_a_little_are_told(tmp_path: Path, kind: str) -> None:
    run = KINDS[kind](tmp_path, [[0.5] * 150, [0.6] * 150])
    assert run.status is RunStatus.OK
    assert "steps take 1.2 times as long" in (run.reason or "")


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_disagree_are_no_measurement(tmp_path: Path, kind: str) -> None:
    run = KINDS[kind](tmp_path, [[0.5] * 150, [5.0] * 150])
    assert run.status is RunStatus.INVALID
    assert "the ranks disagree" in (run.reason or "")
    assert "10 times as long" in (run.reason or "")
    if "labelled" in kind.split(", ") or kind == "dlperf":
        assert "rank 1 prints" in (run.reason or "")


def test_ranks_on_both_sides_of_midnight(tmp_path: Path) -> None:
    def stamp(seconds: float) -> str:
        seconds %= 24 * 3600
        return f"{int(seconds // 3600):02}:{int(seconds // 60) % 60:02}:{seconds % 60:06.3f}"

    mine = custom_format("mine", record=r"(?P<timestamp>[\d:.]+) it (?P<step>\d+)$", ranks="local")
    for midnight in (20, 70, 120):
        begin = 24 * 3600 - midnight * 0.5 + 0.1
        log = "".join(
            f"{stamp(begin + k * 0.5 - rank * 0.2)} it {k}\n"
            for k in range(1, 151)
            for rank in (0, 1)
        )
        run = make.measured(tmp_path, log, mine, of=make.case("1n2g"))
        assert run.metrics.get("throughput") == pytest.approx(512)
        assert run.reason is None

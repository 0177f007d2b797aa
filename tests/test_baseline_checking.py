"""What a look through a cluster's files finds, without measuring anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from baseline_texts import SYSTEM, case, cluster_in, create, do, read, write
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from pytest_dlperf.baselines.checking import check_cluster
from pytest_dlperf.config.cluster import Cluster, find_cluster
from pytest_dlperf.config.systems import System, load_systems
from pytest_dlperf.logs.formats import BUILTIN_FORMATS
from pytest_dlperf.model import statistics
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.measurement import Estimator, Window

if TYPE_CHECKING:
    from pytest_dlperf.model.case import Case

ROOT = Path(__file__).parent.parent


def declared(cases: tuple[Case, ...]) -> System:
    return System(
        framework="paddle",
        model="resnet50",
        unit="images/s",
        log_name="r50",
        log_format=BUILTIN_FORMATS["paddle_resnet"],
        window=Window(warmup_steps=20, measured_steps=100),
        cases=cases,
        file=Path("paddle-resnet50.yaml"),
    )


CASES = (case("fp32-b128-1n1g"), case("fp32-b128-1n8g"))
SYSTEMS = {SYSTEM: declared(CASES)}

TEXT = """\
system: paddle-resnet50
unit: images/s
estimator: steady
entries:
  fp32-b128:
    1n1g:
      throughput: 352.72
      speedup: 1.0
      runs: {1: 352.0, 2: 353.44}
    1n8g:
      throughput: 2626.0
      speedup: 7.44499
      mean: 2650.33
      runs: {1: 2625.0, 2: 2626.0, 3: 2700.0}
      sessions:
        - {at: "2026-11-01T03:00:00+00:00", runs: [2620.0, 2630.0]}
        - {at: "2026-11-02T03:00:00+01:00", runs: [2620.0, 2630.0]}
      accepted:
        at: "2026-10-01T03:00:00Z"
        single_device: 352.72
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return cluster_in(tmp_path)


def found(cluster: Cluster, text: str) -> list[tuple[str, bool]]:
    file = write(cluster, text)
    return [
        (str(one).removeprefix(f"{file}:"), one.is_fault) for one in check_cluster(cluster, SYSTEMS)
    ]


def test_a_good_file_has_no_findings(cluster: Cluster) -> None:
    assert found(cluster, TEXT) == []


def test_the_published_files_have_no_findings() -> None:
    files = sorted((ROOT / "bench_tests" / "systems").glob("*.yaml"))
    cluster = find_cluster(ROOT / "baselines", "dlperf-v100", local="local")

    assert list(check_cluster(cluster, load_systems(files, BUILTIN_FORMATS))) == []


EIGHT = "paddle-resnet50-fp32-b128-1n8g: "
FAULTS = {
    ("throughput: 2626.0", "throughput: 2627.0"): (
        f"10: {EIGHT}the throughput 2627.0 does not follow from its runs: the median of 3 runs is "
        "2626.0"
    ),
    ("3: 2700.0}", "3: 2700.0}\n      strays: {9: 26.0}"): (
        f"10: {EIGHT}the throughput 2626.0 does not follow from its runs: the median of 4 runs and "
        "strays is 2625.5"
    ),
    ("mean: 2650.33", "mean: 2650.5"): (
        f"10: {EIGHT}the mean 2650.5 does not follow from its runs: the mean of 3 runs is 2650.33"
    ),
    ("speedup: 7.44499", "speedup: 7.4455"): (
        f"10: {EIGHT}the speedup 7.4455 does not follow from its numbers: 2626 over 352.72 is 7.445"
    ),
    ("2026-11-02T03:00:00+01:00", "2026-11-01T02:59:00+00:00"): (
        f"10: {EIGHT}a session of 2026-11-01T02:59:00+00:00 stands behind a session of "
        "2026-11-01T03:00:00+00:00; the oldest goes first"
    ),
    ("2026-10-01T03:00:00Z", "2026-12-01T03:00:00Z"): (
        f"10: {EIGHT}a session of 2026-11-01T03:00:00+00:00 stands behind the accepted number of "
        "2026-12-01T03:00:00Z; the oldest goes first"
    ),
    ("    1n8g:", "    1n4g:\n      throughput: 9.0\n    1n8g:"): (
        "10: stale: paddle-resnet50 has no case fp32-b128-1n4g; "
        "`pytest-dlperf baselines delete` takes the entry out"
    ),
    ("unit: images/s", "unit: image/s"): (
        "1: the unit is 'image/s', that of the system 'images/s'; they are never compared"
    ),
    ("estimator: steady", "estimator: published"): (
        "1: the estimator is published, that of the cluster steady; they are never compared"
    ),
    ("throughput: 2626.0", "throughput: -2626.0"): (
        "11: $.entries.fp32-b128.1n8g.throughput: found '-2626.0', a number; allowed: a finite "
        "number > 0"
    ),
    ("2026-10-01T03:00:00Z", "2026-13-01T03:00:00Z"): (
        "19: $.entries.fp32-b128.1n8g.accepted.at: '2026-13-01T03:00:00Z' is not a time with its "
        "zone, as in '2026-11-21T03:00:00+00:00'"
    ),
}


@pytest.mark.parametrize(("change", "told"), FAULTS.items())
def test_a_fault_is_told_with_its_place(
    cluster: Cluster, change: tuple[str, str], told: str
) -> None:
    assert TEXT.count(change[0]) == 1
    assert found(cluster, TEXT.replace(*change))[0] == (told, True)


def test_cases_without_baseline_are_listed(cluster: Cluster) -> None:
    more = tuple(case(f"fp32-b{batch}-1n1g") for batch in range(1, 8))
    systems = {SYSTEM: declared((*CASES, *more))}
    file = write(cluster, TEXT)

    [finding] = check_cluster(cluster, systems)

    assert str(finding) == (
        f"{file}:1: 7 cases have no baseline: paddle-resnet50-fp32-b1-1n1g, "
        "paddle-resnet50-fp32-b2-1n1g, paddle-resnet50-fp32-b3-1n1g, paddle-resnet50-fp32-b4-1n1g, "
        "paddle-resnet50-fp32-b5-1n1g and 2 more (--dlperf-create-baselines records them)"
    )
    assert finding.is_fault


def test_a_system_without_a_file_is_a_fault_only_where_the_cluster_runs_it(
    cluster: Cluster,
) -> None:
    [note] = check_cluster(cluster, SYSTEMS)
    assert str(note) == (
        f"{cluster.directory}: paddle-resnet50: none of its 2 cases has a baseline"
    )
    assert not note.is_fault
    [fault] = check_cluster(replace(cluster, systems=(SYSTEM,)), SYSTEMS)
    assert fault == replace(note, is_fault=True)
    assert list(check_cluster(replace(cluster, systems=()), SYSTEMS)) == []


def test_files_and_names_that_fit_no_system_are_faults(cluster: Cluster) -> None:
    file = write(cluster, TEXT)
    (cluster.directory / "cluster.yaml").write_text("systems: [paddle-resnet5]\n", encoding="utf-8")
    listed = replace(cluster, systems=("paddle-resnet5",))
    assert [str(one) for one in check_cluster(listed, SYSTEMS)] == [
        (
            f"{file.parent}/cluster.yaml:1: names the system 'paddle-resnet5', which no system "
            "file declares; did you mean 'paddle-resnet50'?"
        ),
        f"{file}:1: cluster.yaml does not list the system 'paddle-resnet50', so nothing reads this",
    ]
    [unknown] = check_cluster(cluster, {})
    assert unknown.message.startswith("no system file declares 'paddle-resnet50'")
    assert unknown.is_fault


def test_seven_sessions_and_a_coarse_tolerance_are_pointed_out(cluster: Cluster) -> None:
    sessions = "".join(
        f'        - {{at: "2026-11-{day:02}T03:00:00+00:00", runs: [2626.0]}}\n'
        for day in range(3, 8)
    )
    text = TEXT.replace(
        "      accepted:", f"{sessions}      tolerance_percent: 15\n      accepted:"
    )
    assert found(cluster, text) == [
        (f"10: {EIGHT}7 sessions; the last 6 count, delete the older ones", True),
        (f"10: {EIGHT}the own tolerance is 15 %: any loss up to it passes", False),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example(runs=[1.0, 0.25], single=0.5, estimator=Estimator.PUBLISHED)
@given(
    runs=st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=9),
    single=st.floats(1e-3, 1e6),
    estimator=st.sampled_from(Estimator),
)
def test_what_was_recorded_always_adds_up(
    cluster: Cluster, runs: list[float], single: float, estimator: Estimator
) -> None:
    one = replace(cluster, estimator=estimator)
    if estimator is Estimator.PUBLISHED:
        runs = [statistics.rounded(run, 2) or 0.01 for run in runs]
    throughput = statistics.median(runs)
    if estimator is Estimator.PUBLISHED:
        # The speedup is taken over medians that are rounded already.
        throughput = statistics.rounded(throughput, 2)
        speedup = statistics.rounded(throughput / single, 2)
    else:
        speedup = throughput / single
    assume(speedup > 0)
    accepted = Acceptance(at="2026-11-21T03:00:00+00:00", single_device=single)
    (one.directory / f"{SYSTEM}.yaml").unlink(missing_ok=True)
    numbers: dict[str, Any] = {
        "speedup": speedup,
        "runs": dict(enumerate(runs, 1)),
        "acceptance": accepted,
    }

    do(one, [create(name, throughput, **numbers) for name in ("fp32-b128-1n1g", "fp32-b128-1n8g")])

    assert len(read(one)) == 2
    assert list(check_cluster(one, SYSTEMS)) == []

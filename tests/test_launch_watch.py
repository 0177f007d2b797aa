"""What a watched run is ended for, by what its logs show and a clock that a test moves."""

from __future__ import annotations

import os

import log_makers as make
import pytest

from pytest_dlperf.formats.declared import Over, declared_metric
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch import watch
from pytest_dlperf.launch.record import Stop
from pytest_dlperf.launch.watch import NUMBER_GRACE_S, Progress, RunWatch, free_bytes
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.logs.run import RunLogs
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window
from pytest_dlperf.model.metric import Better, Metric, Source, Statistic

pytestmark = pytest.mark.slow

WINDOW = Window(warmup_steps=3, measured_steps=8)
FIRST_LIMIT = 900.0
LIMIT = 300.0
AMPLE = 10**12


class Watched:
    """A run as its logs and the clock show it."""

    def __init__(
        self,
        folder,
        topology="1n1g",
        log_format="dlperf",
        *,
        estimator=Estimator.STEADY,
        declared=(),
        **options,
    ):
        self.case: Case = make.case(topology)
        self.log_format = BUILTIN_FORMATS[log_format]
        self.estimator = estimator
        self.now = 1000.0
        self.free = AMPLE
        self.disk_checks = 0
        self.told: list[Progress] = []
        self.reason = ""
        nodes = self.case.topology.nodes
        self.logs = [folder / "run.log", *(folder / f"node{n}.log" for n in range(1, nodes))]
        readings = [
            LogReading(
                log,
                number=1,
                case=self.case,
                log_format=self.log_format,
                window=WINDOW,
                estimator=estimator,
                declared=declared,
                node=node,
                nodes=nodes,
            )
            for node, log in enumerate(self.logs)
        ]
        self.watch = RunWatch(
            RunLogs(readings),
            **{
                "folders": [log.parent for log in self.logs],
                "work_of_step": self.case.global_batch,
                "first_step_limit_s": FIRST_LIMIT,
                "step_limit_s": LIMIT,
                "end_early": True,
                "on_progress": self.told.append,
                "clock": lambda: self.now,
                **options,
            },
        )

    def free_bytes(self, folder):
        assert folder == self.logs[0].parent
        self.disk_checks += 1
        return self.free

    def write(self, content, *, node=0):
        with self.logs[node].open("a", encoding="ascii") as log:
            log.write(content)

    def step(self, *steps, rank=0, node=0):
        """Records of a rank that names itself."""
        self.write(
            "".join(f"dlperf step rank={rank} step={k} time={k}.5 loss=6.9\n" for k in steps),
            node=node,
        )

    def look(self, after_s=0.25):
        self.now += after_s
        stopped = self.watch.look()
        if stopped is None:
            return None
        self.reason = stopped.reason
        return stopped.stop

    def measured(self, limit=None):
        return LogReading(
            self.logs[0],
            number=1,
            case=self.case,
            log_format=self.log_format,
            window=WINDOW,
            estimator=self.estimator,
        ).finish(limit)


@pytest.fixture
def watched(tmp_path, monkeypatch):
    def make_one(*arguments, **options):
        made = Watched(tmp_path, *arguments, **options)
        monkeypatch.setattr(watch, "free_bytes", made.free_bytes)
        return made

    return make_one


def test_a_run_is_complete_with_the_last_step_that_counts(watched):
    run = watched()
    assert run.look() is None
    run.step(*range(1, 11))
    assert run.look() is None
    run.step(11)
    assert run.look() is Stop.COMPLETE
    assert run.reason
    assert run.watch.finish() == run.measured()
    assert run.measured().status is RunStatus.OK


def test_a_run_to_its_end_is_watched_until_it_is_complete_only(watched):
    run = watched(end_early=False)
    run.step(*range(1, 12))
    assert run.look() is None
    assert run.look(10_000) is None
    run.step(12)
    assert run.look(10_000) is None
    assert run.watch.finish() == run.measured()


def test_other_nodes_that_show_their_ranks_are_waited_for(watched):
    run = watched("2n2g")
    for rank in (0, 1):
        run.step(*range(1, 12), rank=rank)
    run.step(*range(1, 11), rank=2, node=1)
    run.step(*range(1, 12), rank=3, node=1)
    assert run.look() is None
    run.step(11, rank=2, node=1)
    assert run.look() is Stop.COMPLETE


@pytest.mark.parametrize("content", [None, "a node that is quiet\n"])
def test_where_one_process_prints_quiet_nodes_are_not_waited_for(watched, content):
    run = watched("2n1g", "tf_models_bert")
    if content is not None:
        run.write(content, node=1)
    run.write(make.tf_models_bert([0.5] * 11))
    assert run.look() is Stop.COMPLETE
    measured = run.watch.finish()
    assert measured.metrics == run.measured().metrics
    assert measured.reason is None


@pytest.mark.parametrize("content", [None, "a node that is quiet\n"])
def test_where_every_rank_prints_a_node_without_a_step_is_none_of_the_run(watched, content):
    run = watched("2n1g")
    if content is not None:
        run.write(content, node=1)
    run.step(*range(1, 12))
    assert run.look() is None
    assert run.look(LIMIT - 1) is None
    assert run.look(1) is Stop.COMPLETE
    measured = run.watch.finish()
    assert measured.status is RunStatus.INVALID
    assert measured.reason is not None
    assert str(run.logs[1]) in measured.reason
    assert ("is not there" if content is None else "shows no step") in measured.reason


def test_where_every_rank_prints_each_node_s_log_has_to_be_whole(watched):
    run = watched("2n1g")
    run.step(*range(1, 12))
    run.step(3, 2, rank=1, node=1)
    assert run.look() is Stop.BROKEN
    assert str(run.logs[1]) in run.reason
    measured = run.watch.finish()
    assert measured.status is RunStatus.INVALID
    assert measured.reason.endswith("steps are out of order: step 2 follows step 3 (line 2)")


def test_a_node_that_lags_is_waited_for_as_long_as_for_any_step(watched):
    run = watched("2n1g")
    run.step(1, 2, rank=1, node=1)
    run.step(*range(1, 12))
    assert run.look() is None
    assert run.look(LIMIT - 1) is None
    assert run.look(1) is Stop.COMPLETE


def test_no_first_step_hangs(watched):
    run = watched("2n1g")
    run.write("downloading the data\n")
    assert run.look() is None
    run.write("still downloading the data\n")
    assert run.look(FIRST_LIMIT - 0.5) is None
    assert run.look(0.5) is Stop.HUNG
    assert run.reason == "no first step within 900 s"
    assert run.watch.finish() == run.measured()


def test_no_new_step_hangs_with_the_last_step_of_each_rank(watched):
    run = watched("2n2g")
    run.step(1, 2, 3, rank=0)
    run.step(1, 2, rank=1)
    run.step(1, rank=2, node=1)
    run.step(1, 2, rank=3, node=1)
    assert run.look() is None
    run.write("NCCL WARN still waiting\n")
    assert run.look(LIMIT - 1) is None
    assert run.look(1) is Stop.HUNG
    assert run.reason == (
        "no new step for 300 s; last steps: node 1 rank 2: 1, rank 1: 2, node 1 rank 3: 2, "
        "rank 0: 3"
    )
    assert run.watch.finish().status is RunStatus.INVALID


def test_a_rank_that_stops_while_others_go_on_hangs(watched):
    run = watched("1n3g")
    run.step(1, 2, rank=1)
    for step in range(1, 5):
        run.step(step, rank=0)
        run.step(step, rank=2)
        assert run.look(LIMIT / 4) is None
    run.step(5, rank=0)
    assert run.look(LIMIT / 4) is Stop.HUNG
    assert run.reason == (
        "no new step of rank 1 for 300 s; last steps: rank 1: 2, rank 2: 4, rank 0: 5"
    )


def test_a_rank_that_is_through_does_not_hang(watched):
    run = watched("1n2g")
    run.step(*range(1, 12), rank=0)
    for step in range(1, 11):
        run.step(step, rank=1)
        assert run.look(LIMIT - 1) is None
    assert run.look(LIMIT) is Stop.HUNG
    assert run.reason == "no new step for 300 s; last steps: rank 1: 10, rank 0: 11"


def test_a_rank_that_never_shows_hangs(watched):
    run = watched("1n2g")
    run.look()
    for step in range(1, 5):
        run.step(step, rank=1)
        assert run.look(LIMIT - 80) is None
    run.step(5, rank=1)
    assert run.look(80) is Stop.HUNG
    assert run.reason == (
        "not every rank has shown a first step within 900 s; last steps: rank 1: 5"
    )


def test_of_ranks_that_look_alike_one_that_stops_hangs(watched):
    run = watched("1n2g", "pytorch_imagenet")
    for index in (0, 0, 1, 1, 2):
        run.write(make.pytorch_record(0, index, 5005, 0.25) + "\n")
    assert run.look() is None
    run.write(make.pytorch_record(0, 3, 5005, 0.25) + "\n")
    assert run.look(LIMIT) is Stop.HUNG
    assert run.reason == ("no new step for 300 s; last step: 4 (all of its ranks: 2)")


def test_another_node_that_stops_hangs(watched):
    run = watched("2n1g", "tf_models_bert")
    lines = make.tf_models_bert([0.5] * 30).splitlines(keepends=True)
    run.write(lines[0] + lines[1], node=1)
    for line in lines[:4]:
        run.write(line)
        assert run.look(LIMIT / 4) is None
    run.write(lines[4])
    assert run.look(LIMIT / 4) is Stop.HUNG
    assert run.reason == ("no new step of node 1 for 300 s; last steps: node 1: 2, node 0: 5")


def test_of_many_ranks_those_that_are_behind_are_shown(watched):
    run = watched("1n50g")
    for rank in range(50):
        run.step(1, *([] if rank in {2, 10} else [2]), rank=rank)
    run.look()
    assert run.look(LIMIT) is Stop.HUNG
    assert "last steps: rank 2: 1, rank 10: 1, rank 0: 2, rank 1: 2, rank 3: 2" in run.reason
    assert run.reason.endswith("rank 31: 2 and 18 more")


def test_what_has_not_been_read_yet_does_not_hang(watched, monkeypatch):
    monkeypatch.setattr(watch, "BYTES_PER_LOOK", 100)
    run = watched()
    run.write("chatter\n" * 25)
    run.step(1)
    assert run.look() is None
    assert run.look(FIRST_LIMIT) is None
    assert run.look(1) is None
    assert run.look(LIMIT) is Stop.HUNG
    assert run.reason == "no new step for 300 s; last steps: rank 0: 1"


def test_a_broken_log_ends_a_run_with_its_reason(watched):
    run = watched()
    run.write(make.dlperf_header(make.case(batch=64)))
    assert run.look() is None
    run.step(1)
    assert run.look() is Stop.BROKEN
    assert run.reason == (
        "the log says batch_per_device 64; the case framework-model-fp32-b128-1n1g has 128 (line 1)"
    )
    assert run.watch.finish() == run.measured()


def test_a_full_disk_ends_a_run(watched, tmp_path):
    run = watched("2n1g")
    assert run.look() is None
    run.free = 1024 * 1024 - 1
    assert run.look(1) is Stop.DISK_FULL
    assert run.reason == (
        f"the disk is full: 1048575 bytes are free in {tmp_path}, where the logs of the run lie; "
        "needed are 1048576 at least"
    )


def test_a_disk_that_cannot_be_looked_at_is_not_full(watched, monkeypatch):
    def fail(_):
        raise PermissionError

    run = watched()
    monkeypatch.setattr(watch, "free_bytes", fail)
    assert run.look() is None


# --------------------------------------------------------------------------- declared metrics


def memory(**given):
    metric = Metric(
        name="peak_memory",
        unit="MB",
        better=Better.LOWER,
        source=Source.LOG,
        statistic=Statistic.LAST,
    )
    return declared_metric(metric, record="peak (?P<value>[0-9]+) MB", **given)


@pytest.mark.parametrize("over", Over)
def test_a_number_behind_the_last_step_is_awaited(watched, over):
    run = watched(declared=[memory(over=over)])
    run.step(*range(1, 12))
    assert run.look() is None
    assert run.look(NUMBER_GRACE_S / 2) is None
    run.write("peak 512 MB\n")
    assert run.look() is Stop.COMPLETE
    measured = run.watch.finish()
    assert measured.metrics == {**run.measured().metrics, "peak_memory": 512}


def test_a_number_that_does_not_come_costs_a_moment_and_not_the_throughput(
    watched,
):
    run = watched(declared=[memory()])
    run.step(*range(1, 12))
    assert run.look() is None
    assert run.look(NUMBER_GRACE_S - 0.1) is None
    assert run.look(0.1) is Stop.COMPLETE
    measured = run.watch.finish()
    assert measured.metrics == run.measured().metrics
    assert str(run.logs[0]) in measured.missing["peak_memory"]


@pytest.mark.parametrize(("node", "stop"), [("any", Stop.COMPLETE), ("each", None), ("last", None)])
def test_the_number_of_another_node_is_awaited(watched, node, stop):
    run = watched("2n1g", declared=[memory(node=WhichNode(node))])
    for rank in (1, 0):
        run.step(*range(1, 12), rank=0, node=rank)
    assert run.look() is None
    run.write("peak 512 MB\n")
    assert run.look() is stop
    run.write("peak 640 MB\n", node=1)
    assert run.look() is Stop.COMPLETE
    expected = {"any": 640, "each": 640, "last": 640}
    assert run.watch.finish().metrics["peak_memory"] == expected[node]


def test_the_first_step_ends_when_all_ranks_have_shown_it(watched):
    run = watched("1n2g")
    run.look()
    run.step(1, rank=0)
    run.look(20)
    assert run.watch.first_step.seconds is None
    run.step(1, rank=1)
    run.look(2)
    run.step(2)
    run.look(5)
    assert run.watch.first_step.seconds == 22


def test_without_its_record_the_first_step_s_time_is_not_known(watched):
    run = watched()
    run.look()
    assert "before its first step" in run.watch.first_step.problem
    run.step(*range(10, 100, 10))
    run.look(20)
    assert run.watch.first_step.seconds is None
    assert "step 10" in run.watch.first_step.problem


def test_free_bytes_are_those_of_the_file_system(tmp_path, monkeypatch):
    found = os.statvfs(tmp_path)
    assert 0 < free_bytes(tmp_path) <= found.f_blocks * found.f_frsize
    # Not every file system tells its size.
    unknown = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: unknown)
    assert free_bytes(tmp_path) > AMPLE


def test_progress_is_the_slowest_rank_s_and_goes_by_the_time_of_arrival(watched):
    run = watched("2n2g")
    run.look()
    for step in range(1, 12):
        run.step(step, rank=0)
        run.look(1)
        run.step(step, rank=1)
        # The warm-up of three steps is slower.
        run.look(1 if step > 3 else 4)
    steps = [progress.step for progress in run.told]
    assert steps == sorted(steps)
    assert {progress.steps for progress in run.told} == {11}
    assert run.told[0] == Progress(step=0, steps=11, throughput=None, left_s=None)
    by_step = {progress.step: progress for progress in run.told}
    assert by_step[1].throughput is by_step[3].throughput is None
    assert by_step[2].left_s == pytest.approx(9 * 5)
    assert by_step[5].throughput == pytest.approx(4 * 128 / 2)
    assert by_step[5].left_s == pytest.approx(6 * 2)
    assert by_step[11].left_s == 0


def test_progress_is_told_once_a_second_and_only_if_it_is_news(watched):
    run = watched()
    for _ in range(30):
        run.look(0.25)
    assert len(run.told) == 1
    for step in range(1, 11):
        run.step(step)
        run.look(0.25)
    assert [progress.step for progress in run.told] == [0, 1, 5, 9]


def test_what_counts_may_be_less_than_what_was_seen(watched):
    run = watched()
    run.step(*range(1, 12))
    assert run.look() is Stop.COMPLETE
    limit = run.logs[0].stat().st_size - len(" loss=6.9\n")
    measured = run.watch.finish([limit])
    assert measured == run.measured(limit)
    assert measured.status is RunStatus.INVALID

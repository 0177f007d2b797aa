"""Logs of several nodes and ranks: which are read, and what they say of the same steps."""

import math
import tempfile
from pathlib import Path

import log_makers as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_logs import judged

from pytest_dlperf.formats.log_format import WhichNode, custom_format
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.run import REACH, RunLogs
from pytest_dlperf.model.builtin import builtin_metrics
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

TITAN = """\
extends: torchtitan
model: llama3_8b
log: {format: {%s}}
window: {warmup_steps: 2, measured_steps: 10}
cases:
  - {precision: bf16, global_batch: 64, sequence_length: 8192, topologies: [4n8g], reference: none}
"""
LABELLED = (
    r"ranks: nodes, record: '^(?P<rank>\d+): .*\[titan\] (?P<timestamp>[0-9-]+ [0-9:,]+) - root - "
    r"INFO - step: +(?P<step>\d+) '"
)


# A run has a log of each node: which of them its number comes from, and what the others say

WINDOW = Window(warmup_steps=2, measured_steps=10)
ONE_PRINTS = custom_format("m", record=r"step (?P<step>[0-9]+) took (?P<milliseconds>[0-9.]+) ms")
ALL_PRINT = custom_format(
    "r",
    record=r"rank (?P<rank>[0-9]+) step (?P<step>[0-9]+) took (?P<milliseconds>[0-9.]+) ms",
    ranks="local",
)
AT_500_MS = 512.0
OF_STEPS = [WhichNode.FIRST, WhichNode.LAST, WhichNode.EACH]
"""Samples per second of two nodes with one device each, of 128 samples."""


def steps(milliseconds=500, *, last=12, rank=None):
    """What a node prints whose steps take so long."""
    who = "" if rank is None else f"rank {rank} "
    return "".join(f"{who}step {step} took {milliseconds} ms\n" for step in range(1, last + 1))


def titan(node, step, label):
    """What one process of a node prints of a step that ends every two seconds."""
    return (
        f"{label.format(node)}[rank{8 * node}]:[titan] 2026-11-20 10:00:{2 * step:02},{node:03} - "
        f"root - INFO - step: {step:2}  loss: {9 - step / 9:8.5f}  memory:  9.46GiB(64.99%)  \n"
    )


@pytest.mark.parametrize(
    ("log_format", "label"),
    [("ranks: nodes", ""), ("ranks: nodes", "{}: "), (LABELLED, "{}: ")],
)
@pytest.mark.parametrize("block", [1, 20])
def test_one_process_of_each_node_prints_into_one_log(tmp_path, log_format, label, block):
    """As into ``slurm-%j.out``, in turn or in blocks: 64 samples of 8,192 tokens in 2 s."""
    (tmp_path / "titan.yaml").write_text(TITAN % log_format, encoding="utf-8")
    log = "".join(
        titan(node, step, label)
        for begin in range(1, 21, block)
        for node in range(4)
        for step in range(begin, begin + block)
    )
    run = judged(tmp_path / "titan.yaml", log)
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics["throughput"] == pytest.approx(64 * 8192 / 2)


def test_a_node_that_did_not_print_is_missed(tmp_path):
    (tmp_path / "titan.yaml").write_text(TITAN % "ranks: nodes", encoding="utf-8")
    log = "".join(titan(node, step, "") for step in range(1, 21) for node in range(3))
    run = judged(tmp_path / "titan.yaml", log)
    assert "3 time(s); the case" in (run.reason or "")
    assert "has 4 rank(s) that print into it" in (run.reason or "")


def test_what_to_set_where_several_processes_print_is_said(tmp_path):
    (tmp_path / "titan.yaml").write_text(TITAN % "ranks: one", encoding="utf-8")
    log = "".join(titan(node, step, "") for step in range(1, 21) for node in range(4))
    assert "'nodes' for one of each node" in (judged(tmp_path / "titan.yaml", log).reason or "")


class Logs:
    """The logs of a run, with what each node has printed; ``None`` where there is no log."""

    def __init__(
        self,
        folder,
        *contents,
        node="first",
        log_format=ONE_PRINTS,
        estimator=Estimator.STEADY,
        window=WINDOW,
        **options,
    ):
        self.paths = [folder / f"node{rank}.log" for rank in range(len(contents))]
        for path, content in zip(self.paths, contents, strict=True):
            if content is not None:
                path.write_text(content, encoding="utf-8")
        case = make.case(f"{len(contents)}n1g")
        self.run_logs = RunLogs(
            [
                LogReading(
                    path,
                    number=1,
                    case=case,
                    log_format=log_format,
                    window=window,
                    estimator=estimator,
                    node=rank,
                    nodes=len(contents),
                    **options,
                )
                for rank, path in enumerate(self.paths)
            ],
            node=WhichNode(node),
        )

    def run(self, *limits):
        return self.run_logs.finish(limits)

    def throughput(self):
        run = self.run()
        assert run.status is RunStatus.OK, run.reason
        return run.metrics["throughput"]

    def why_invalid(self):
        run = self.run()
        assert (run.status, run.metrics) == (RunStatus.INVALID, {})
        assert run.reason is not None
        return run.reason


@pytest.fixture
def nodes(tmp_path):
    return lambda *contents, **options: Logs(tmp_path, *contents, **options)


@pytest.mark.parametrize(
    ("node", "contents", "main"),
    [
        ("first", [steps(), "x\n"], 0),
        ("last", ["x\n", steps()], 1),
        ("last", ["x\n", "y\n", steps()], 2),
        ("each", [steps(), steps()], 0),
    ],
)
def test_the_log_of_the_node_that_prints_is_the_run_s(nodes, node, contents, main):
    logs = nodes(*contents, node=node)
    run = logs.run()
    assert (run.status, run.reason, run.steps) == (RunStatus.OK, None, 10)
    assert run.metrics["throughput"] == 256 * len(contents)
    assert run.log == str(logs.paths[main])


@pytest.mark.parametrize("node", OF_STEPS)
def test_a_single_log_is_that_of_all_nodes(nodes, node):
    assert nodes(steps(), node=node.value).throughput() == 256


@pytest.mark.parametrize(
    ("node", "contents", "advice"),
    [
        ("first", ["x\n", steps()], "node: last"),
        ("first", ["x\n", steps(), "x\n"], "shows steps"),
        ("last", [steps(), "x\n"], "node: first"),
    ],
)
def test_steps_in_another_log_are_pointed_out(nodes, node, contents, advice):
    logs = nodes(*contents, node=node)
    reason = logs.why_invalid()
    assert advice in reason
    assert str(logs.paths[contents.index(steps())]) in reason


@pytest.mark.parametrize("content", ["x\n", "", None])
def test_where_each_has_to_print_one_that_does_not_is_named(nodes, content):
    logs = nodes(steps(), content, node="each")
    run = logs.run()
    assert (run.status, run.log) == (RunStatus.INVALID, str(logs.paths[1]))


@pytest.mark.parametrize(("other", "agree"), [(549, True), (551, False), (455, True), (454, False)])
def test_two_that_count_have_to_agree(nodes, other, agree):
    logs = nodes(steps(), steps(other), node="each")
    if agree:
        assert logs.throughput() == pytest.approx((AT_500_MS + AT_500_MS * 500 / other) / 2)
    else:
        reason = logs.why_invalid()
        assert all(shown in reason for shown in ("512", *map(str, logs.paths), "10%"))


def test_each_node_s_own_speed_is_summed(nodes):
    own = custom_format(
        "own",
        record=r"step (?P<step>[0-9]+): (?P<samples_per_second>[0-9]+)/s",
        rate_scope="node",
    )

    def printed(rate):
        return "".join(f"step {step}: {rate}/s\n" for step in range(1, 13))

    assert nodes(printed(300), printed(100), node="each", log_format=own).throughput() == 400


def test_nodes_may_be_a_step_apart(nodes):
    short = Window(warmup_steps=2, measured_steps=4)
    mean = (AT_500_MS + AT_500_MS * 500 / 620) / 2
    assert nodes(steps(), steps(620), node="each", window=short).throughput() == pytest.approx(mean)
    assert "25%" in nodes(steps(), steps(630), node="each", window=short).why_invalid()


def test_the_slowest_of_each_node_s_step_times_counts(nodes):
    p50 = builtin_metrics("samples/s")["step_time_p50"]
    run = nodes(steps(), steps(540), node="each", metrics=[p50]).run()
    assert run.metrics["step_time_p50"] == pytest.approx(0.54)


# ---------------------------------------------------------------------------- the other logs


@pytest.mark.parametrize("content", ["x\n", "", None])
def test_where_every_rank_prints_each_node_has_to_show_steps(nodes, content):
    logs = nodes(steps(rank=0), content, log_format=ALL_PRINT)
    reason = logs.why_invalid()
    assert str(logs.paths[1]) in reason
    assert ("is not there" if content is None else "shows no step") in reason
    assert nodes(steps(rank=0), steps(rank=1), log_format=ALL_PRINT).throughput() == AT_500_MS


def test_where_every_rank_prints_what_another_log_breaks_the_run_breaks(nodes):
    logs = nodes(steps(rank=0), steps(rank=1) + steps(rank=2), log_format=ALL_PRINT)
    run = logs.run()
    assert run.status is RunStatus.OK  # the other rank came behind the window
    logs = nodes(steps(rank=0), steps(rank=1, last=2) + steps(rank=2), log_format=ALL_PRINT)
    run = logs.run()
    assert run.status is RunStatus.INVALID
    assert str(logs.paths[1]) in run.reason
    assert "steps of more ranks than 1" in run.reason


def test_a_log_that_need_not_show_steps_is_not_read_to_its_end(nodes):
    noise = "NCCL INFO " * 5 + "\n"
    count = 3 * REACH // len(noise)
    far = noise * count + steps(900)
    logs = nodes(steps(), far)
    assert logs.run().reason is None
    assert logs.run_logs.readings[1].position <= REACH + len(steps())


def test_only_what_was_there_at_the_failure_counts(nodes):
    logs = nodes(steps(), steps(900))
    assert logs.run(None, len(steps(last=5))).status is RunStatus.OK
    logs = nodes("x\n", steps(), node="last")
    assert logs.run(None, len(steps(last=5))).status is RunStatus.INVALID
    assert nodes("x\n", steps(), node="last").run(0, None).status is RunStatus.OK


# ------------------------------------------------------------------------- while they are growing


@pytest.mark.parametrize("node", OF_STEPS)
def test_a_run_is_complete_with_the_log_that_counts(nodes, node):
    logs = nodes("", "", node=node.value)
    complete_with = {"first": [0], "last": [1], "each": [0, 1]}[node.value]
    assert logs.run_logs.advance(1000)
    for at in complete_with:
        assert logs.run_logs.state is LogState.GROWING
        logs.paths[at].write_text(steps(), encoding="utf-8")
        logs.run_logs.advance(1000)
    assert logs.run_logs.state is LogState.COMPLETE
    assert logs.run_logs.steps.slowest == 12
    assert logs.run_logs.first_step == 1


pieces = st.lists(st.sampled_from([500, 520, 900, "x\n", "step 3 took 5 ms\n", "\r"]), max_size=14)


@given(
    pieces=st.tuples(pieces, pieces),
    cuts=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 400)), max_size=5),
    node=st.sampled_from(OF_STEPS),
    all_print=st.booleans(),
    limits=st.tuples(*[st.none() | st.integers(0, 400)] * 2),
)
def test_however_the_logs_grow_the_run_is_that_of_the_whole(
    pieces,
    cuts,
    node,
    all_print,
    limits,
):
    contents = []
    for rank, drawn in enumerate(pieces):
        counted = iter(range(1, 20))
        who = f"rank {rank} " if all_print else ""
        contents.append(
            "".join(
                f"{who}step {next(counted)} took {piece} ms\n" if isinstance(piece, int) else piece
                for piece in drawn
            )
        )
    options = {
        "node": node.value,
        "log_format": ALL_PRINT if all_print else ONE_PRINTS,
    }
    with tempfile.TemporaryDirectory() as folder:
        growing = Logs(Path(folder), "", "", **options)
        for at, size in sorted(cuts, key=lambda cut: cut[1]):
            growing.paths[at].write_text(contents[at][:size], encoding="utf-8")
            growing.run_logs.advance(1000)
        for path, content in zip(growing.paths, contents, strict=True):
            path.write_text(content, encoding="utf-8")
        whole = Logs(Path(folder), *contents, **options)
        assert growing.run(*limits) == whole.run(*limits)


# Ranks of one training that say different things of the same steps

LABEL = r"rank (?P<rank>\d) "


def _format(record, *, labelled):
    label = LABEL if labelled else r"rank \d "
    return custom_format("mine", record=label + record, ranks="local")


def _lines(ranks, line):
    return "".join(
        f"rank {rank} "
        + line.format(k=k, t=times[k - 1], r=256 / times[k - 1], at=math.fsum(times[:k]))
        + "\n"
        for k in range(1, len(ranks[0]) + 1)
        for rank, times in enumerate(ranks)
    )


def _declared(record, line, *, labelled):
    log_format = _format(record, labelled=labelled)

    def measure(path, ranks):
        return make.measured(path, _lines(ranks, line), log_format, of=make.case("1n2g"))

    return measure


KINDS = {
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
def test_ranks_that_agree(tmp_path, kind):
    run = KINDS[kind](tmp_path, [[0.5] * 150, [0.51] * 150])
    assert (run.status, run.reason) == (RunStatus.OK, None)
    assert run.metrics["throughput"] == pytest.approx(512, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_differ_a_little_are_told(tmp_path, kind):
    run = KINDS[kind](tmp_path, [[0.5] * 150, [0.6] * 150])
    assert run.status is RunStatus.OK
    assert "steps take 1.2 times as long" in (run.reason or "")


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_disagree_are_no_measurement(tmp_path, kind):
    run = KINDS[kind](tmp_path, [[0.5] * 150, [5.0] * 150])
    assert run.status is RunStatus.INVALID
    assert "the ranks disagree" in (run.reason or "")
    assert "10 times as long" in (run.reason or "")
    if "labelled" in kind.split(", ") or kind == "dlperf":
        assert "rank 1 prints" in (run.reason or "")


def test_ranks_on_both_sides_of_midnight(tmp_path):
    def stamp(seconds):
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

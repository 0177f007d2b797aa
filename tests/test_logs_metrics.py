"""Metrics that a log prints, beside the steps: found, reduced to a number, checked, or missing."""

import random
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_makers import case

from pytest_dlperf.formats.declared import Over, declared_metric, unit_factor
from pytest_dlperf.formats.log_format import WhichNode, custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.run import RunLogs
from pytest_dlperf.model.builtin import builtin_metrics
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window
from pytest_dlperf.model.metric import Better, Metric, Sanity, Source, Statistic

MEGATRON = custom_format(
    "megatron",
    record=r"iteration +(?P<step>[0-9]+)/.*elapsed time per iteration \(ms\): "
    r"(?P<milliseconds>[0-9.]+) ",
)
WINDOW = Window(warmup_steps=2, measured_steps=6)
LAST = 8


def line(step, *, loss="2.5", more=""):
    return (
        f" iteration {step:8d}/     100 | consumed samples: {step * 128:12d} | elapsed time per "
        f"iteration (ms): 500.0 | learning rate: 1.0E-04 | lm loss: {loss} | {more}\n"
    )


def steps(*, loss=lambda step: 9 - step, last=LAST):
    return [line(step, loss=f"{loss(step)}") for step in range(1, last + 1)]


def metric(name, record, **given):
    """A declared metric: of what is printed, and of how it is judged."""
    reading = {key: given.pop(key) for key in ("printed_in", "node", "over") if key in given}
    definition = {"unit": "", "better": None, "source": Source.LOG, "statistic": Statistic.MEDIAN}
    return declared_metric(Metric(name=name, **{**definition, **given}), record=record, **reading)


def loss(**given):
    return metric("loss", r"lm loss: (?P<value>[-+.0-9EeNnaif,]+) ", **given)


def memory(record=r"allocated: (?P<value>[-0-9.,e]+)", **given):
    return metric("peak_memory", record, **{"unit": "MB", "better": Better.LOWER, **given})


def reading(path, *declared, **given):
    order = {
        "number": 1,
        "case": case(),
        "log_format": MEGATRON,
        "window": WINDOW,
        "estimator": Estimator.STEADY,
        "declared": declared,
    }
    return LogReading(path, **{**order, **given})


def read(path, log, *declared, **given):
    """Write a log and measure it."""
    file = path / "run.log"
    file.write_text(log if isinstance(log, str) else "".join(log), encoding="utf-8")
    return reading(file, *declared, **given).finish()


def number(path, log, declared, **given):
    run = read(path, log, declared, **given)
    assert run.status is RunStatus.OK, run.reason
    return run.metrics[declared.metric.name]


def why_missing(path, log, declared):
    run = read(path, log, declared)
    assert run.status is RunStatus.OK, run.reason
    assert run.metrics["throughput"] == 256
    assert declared.metric.name not in run.metrics
    return run.missing[declared.metric.name]


def why_unsound(path, log, declared):
    run = read(path, log, declared)
    assert (run.status, run.metrics, run.missing) == (RunStatus.INVALID, {}, {})
    assert run.reason is not None
    return run.reason


# ------------------------------------------------------------------ which numbers, which step


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("median", 3.5),
        ("mean", 3.5),
        ("max", 6),
        ("min", 1),
        ("last", 1),
        ("p95", 5.75),
        ("p99", 5.95),
    ],
)
def test_one_number_comes_of_those_in_the_window(tmp_path, statistic, expected):
    declared = loss(statistic=Statistic(statistic))
    assert number(tmp_path, steps(), declared) == pytest.approx(expected)


def test_a_number_on_a_line_of_its_own_is_of_the_step_before(tmp_path):
    log = "".join(
        f"{text}(after {step} iterations) memory | allocated: {step} | reserved: 99\n"
        for step, text in enumerate(steps(last=12), 1)
    )
    for statistic, expected in ((Statistic.MIN, 3), (Statistic.MAX, 8), (Statistic.LAST, 8)):
        assert number(tmp_path, log, memory(statistic=statistic)) == expected


def test_what_follows_a_step_does_not_count_where_its_line_has_the_number(tmp_path):
    log = [f"{text}validation lm loss: 77 \n" for text in steps()]
    assert number(tmp_path, log, loss(statistic=Statistic.MAX)) == 6


def test_a_number_that_names_its_step_is_of_that_one(tmp_path):
    declared = memory(r"step (?P<step>[0-9]+) allocated: (?P<value>[0-9]+)")
    before = [f"step {step} allocated: {step}\n{text}" for step, text in enumerate(steps(), 1)]
    assert number(tmp_path, before, declared) == 5.5
    at_the_end = [*steps(last=9), *(f"step {step} allocated: {step}\n" for step in range(1, 10))]
    assert "no match in the window, steps 3 to 8" in why_missing(tmp_path, at_the_end, declared)


def test_steps_count_on_through_epochs(tmp_path):
    of_epochs = custom_format(
        "e", record=r"epoch (?P<epoch>[0-9]+) step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) "
    )
    declared = memory(r"at step (?P<step>[0-9]+), allocated: (?P<value>[0-9]+)")
    log = "".join(
        f"epoch {k // 4} step {k % 4} took 0.5 s\nat step {k % 4}, allocated: {k + 1}\n"
        for k in range(12)
    )
    for statistic, expected in ((Statistic.MIN, 3), (Statistic.MAX, 8)):
        of_steps = memory(declared.record.pattern, statistic=statistic)
        assert number(tmp_path, log, of_steps, log_format=of_epochs) == expected


def test_a_number_that_is_printed_once_counts_over_the_run(tmp_path):
    over_run = memory(over=Over.RUN, statistic=Statistic.LAST)
    for log in (
        ["peak allocated: 512\n", *steps()],
        [*steps(), "peak allocated: 512\n"],
        [*steps(last=40), "peak allocated: 512\n"],
    ):
        assert number(tmp_path, log, over_run) == 512
    assert "needs 'over: run'" in why_missing(
        tmp_path, ["peak allocated: 512\n", *steps()], memory()
    )


def test_only_whole_lines_count(tmp_path):
    cut = [*steps(), "peak allocated: 51"]
    assert "no match" in why_missing(tmp_path, cut, memory(over=Over.RUN))


@pytest.mark.parametrize("buffer_size", [64, 1000, 1 << 18])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_how_a_log_is_cut_changes_no_number(tmp_path, buffer_size, end):
    log = "".join(
        f"{text}noise {step} \n memory allocated: {step} \n" for step, text in enumerate(steps(), 1)
    ).replace("\n", end)
    file = tmp_path / "run.log"
    file.write_bytes(log.encode())
    run = reading(file, loss(), memory(), buffer_size=buffer_size).finish()
    assert run.metrics == {"throughput": 256, "loss": 3.5, "peak_memory": 5.5}


pieces = st.lists(
    st.sampled_from(
        [
            "step",
            "noise\n",
            " allocated: 5 \n",
            " allocated: 5,6\n",
            "at step 4: 7 W\n",
            "at step 6: 8 W\n",
            "peak 3",
            "peak 4\n",
            "\r",
        ]
    ),
    max_size=60,
)


@pytest.mark.slow
@given(pieces=pieces, cut=st.integers(0, 6000), buffer_size=st.sampled_from([1, 50, 300, 1 << 18]))
def test_a_log_that_grows_gives_what_the_whole_gives(pieces, cut, buffer_size):
    declared = (
        loss(sanity=Sanity(falls=True, below=1000)),
        memory(),
        metric("power", r"at step (?P<step>[0-9]+): (?P<value>[0-9]+) W", unit="W"),
        metric("peak", "peak (?P<value>[0-9])", over=Over.RUN, statistic=Statistic.MAX),
    )
    printed = iter(range(1, 100))

    def next_line():
        step = next(printed)
        return line(step, loss=f"{200 - step}")

    text = "".join(next_line() if piece == "step" else piece for piece in pieces)
    content = (text + "".join(next_line() for _ in range(20))).encode()[:6000]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.log")
        growing = reading(file, *declared, buffer_size=buffer_size)
        file.write_bytes(content[:cut])
        growing.advance()
        with file.open("ab") as grown:
            grown.write(content[cut:])
        growing.advance()
        assert growing.finish() == reading(file, *declared).finish()


def test_the_published_lines_have_a_window_too(tmp_path):
    from log_makers import dllogger

    log = dllogger([0.5] * 126)
    declared = metric("ips", r"train\.total_ips : (?P<value>[0-9.]+) img/s", better=Better.HIGHER)
    run = read(
        tmp_path,
        log,
        declared,
        log_format=BUILTIN_FORMATS["dllogger"],
        window=Window(warmup_steps=20, measured_steps=100),
        estimator=Estimator.PUBLISHED,
    )
    assert run.metrics["ips"] == 256.0


# ---------------------------------------------------------------------------------- the units


@pytest.mark.parametrize(
    ("printed", "kept", "expected"),
    [
        ("MB", "MB", 1),
        ("GiB", "MiB", 1024),
        ("GiB", "GB", 1.073741824),
        ("M", "GB", 1e-3),
        ("k", "tokens/s", 1000),
        ("ktokens/s", "tokens/s", 1000),
        ("ms", "s", 1e-3),
        ("kWh", "J", 3.6e6),
        ("", "%", 100),
    ],
)
def test_units_are_worth_what_they_say(printed, kept, expected):
    assert unit_factor(printed, kept) == pytest.approx(expected)


def test_numbers_are_kept_in_the_metric_s_own_unit(tmp_path):
    log = [f"{text} memory: 2048MiB\n memory: 3GiB\n" for text in steps()]
    with_unit = memory(r"memory: (?P<value>[0-9.]+)(?P<unit>[KMG]iB)", unit="GiB")
    assert number(tmp_path, log, with_unit) == 2.5
    plain = [f"{text} memory: 2048\n" for text in steps()]
    assert (
        number(tmp_path, plain, memory("memory: (?P<value>.+)", unit="GiB", printed_in="MiB")) == 2
    )


def test_an_unknown_unit_is_told_with_its_line(tmp_path):
    log = [f"{text}memory: 3 blobs\n" for text in steps()]
    reason = why_missing(tmp_path, log, memory(r"memory: (?P<value>[0-9]+) (?P<unit>\w+)"))
    assert "'blobs'" in reason
    assert reason.endswith("(line 6)")


# ----------------------------------------------------------------------------------- the nodes


@pytest.fixture
def nodes(tmp_path):
    """The logs of three nodes, of which the last two print memory: 20 and 30."""
    logs = []
    for node in range(3):
        log = tmp_path / f"node{node}.log"
        more = f"allocated: {node * 10 + 10}\n" if node else ""
        log.write_text("".join(f"{text}{more}" for text in steps()), encoding="utf-8")
        logs.append(log)
    return logs


def read_nodes(logs, declared):
    return RunLogs(
        reading(log, declared, node=node, nodes=len(logs)) for node, log in enumerate(logs)
    ).finish()


@pytest.mark.parametrize(("node", "expected"), [("last", 30), ("any", 25)])
def test_the_logs_of_the_named_nodes_are_read(nodes, node, expected):
    assert read_nodes(nodes, memory(node=WhichNode(node))).metrics["peak_memory"] == expected


@pytest.mark.parametrize("node", ["first", "each"])
def test_a_node_without_the_metric_is_named(nodes, node):
    reason = read_nodes(nodes, memory(node=WhichNode(node))).missing["peak_memory"]
    assert f"in {nodes[0]}: no match" in reason


def of_last_rank(folder, declared):
    """Logs as Megatron's: the last rank prints the steps, the first one its memory."""
    logs = [folder / "node0.log", folder / "node1.log"]
    logs[0].write_text(
        "".join(
            f"[Rank 0] (after {step} iterations) memory (MB) | max allocated: {step * 100}.5 |\n"
            for step in range(1, 11)
        )
    )
    logs[1].write_text("".join(steps()), encoding="utf-8")
    readings = [
        reading(log, declared, node=node, nodes=2, case=case("2n1g"))
        for node, log in enumerate(logs)
    ]
    return RunLogs(readings, node=WhichNode.LAST)


def test_the_step_s_number_may_stand_in_a_log_that_shows_no_steps(tmp_path):
    numbered = memory(
        r"after (?P<step>[0-9]+) iterations.* max allocated: (?P<value>[0-9.]+) ",
        statistic=Statistic.MAX,
    )
    logs = of_last_rank(tmp_path, numbered)
    logs.advance(1000_000)
    assert not logs.lacks_numbers
    assert logs.finish().metrics["peak_memory"] == 800.5


def test_a_number_without_step_needs_a_log_with_steps(tmp_path):
    record = r" max allocated: (?P<value>[0-9.]+) "
    run = of_last_rank(tmp_path, memory(record)).finish()
    assert run.metrics == {"throughput": 512}
    assert str(tmp_path / "node0.log") in run.missing["peak_memory"]
    assert "'over: run'" in run.missing["peak_memory"]
    over_run = memory(record, over=Over.RUN, statistic=Statistic.MAX)
    assert of_last_rank(tmp_path, over_run).finish().metrics["peak_memory"] == 1000.5


def test_the_worst_of_all_ranks_last_numbers_counts(tmp_path):
    log = [*steps(), *(f"rank {rank} allocated: {10 - rank}\n" for rank in range(4))]
    declared = memory(
        r"rank (?P<rank>[0-9]+) allocated: (?P<value>[0-9.]+)",
        over=Over.RUN,
        statistic=Statistic.LAST,
    )
    assert number(tmp_path, log, declared) == 10


# --------------------------------------------------------------------------------- the sanity


@pytest.mark.parametrize(("value", "verdict"), [(1.0, "does not fall"), (2.0, None)])
def test_a_loss_has_to_fall(tmp_path, value, verdict):
    log = steps(loss=lambda step: 1 if step > 5 else value)
    if verdict is None:
        assert number(tmp_path, log, loss(sanity=Sanity(falls=True))) == 1.5
    else:
        reason = why_unsound(tmp_path, log, loss(sanity=Sanity(falls=True)))
        assert verdict in reason
        assert reason.count("1 in") == 2 or ("1 in" in reason and "1 in the second" in reason)


@pytest.mark.parametrize("seed", range(5))
def test_a_fall_is_held_against_the_scatter_of_the_window(tmp_path, seed):
    """Random data: the first half is above the second in one run of two."""
    noise = random.Random(seed)  # noqa: S311 - no secret
    flat = [noise.gauss(5.137, 0.02) for _ in range(100)]
    window = Window(warmup_steps=0, measured_steps=100)
    declared = loss(sanity=Sanity(falls=True))

    def run_of(values):
        log = steps(loss=lambda step: f"{values[step - 1]:.5f}", last=100)
        return read(tmp_path, log, declared, window=window)

    reason = run_of(flat).reason or ""
    assert "does not fall beyond its scatter: its mean is 5.1" in reason
    assert "write 'loss: {sanity: finite}'" in reason
    falling = [value - 0.0005 * step for step, value in enumerate(flat)]
    assert run_of(falling).status is RunStatus.OK
    assert "does not fall: its mean" in (run_of(falling[::-1]).reason or "")


def test_a_spike_hides_no_fall(tmp_path):
    log = steps(loss=lambda step: "900.0" if step == 90 else f"{7 - step / 50}", last=100)
    window = Window(warmup_steps=20, measured_steps=80)
    run = read(tmp_path, log, loss(sanity=Sanity(falls=True)), window=window)
    assert run.status is RunStatus.OK, run.reason


@pytest.mark.parametrize(
    ("sanity", "said"),
    [
        (Sanity(below=5), "loss is 6; needed is one below 5 (line 3)"),
        (Sanity(above=2), "loss is 2; needed is one above 2 (line 7)"),
    ],
)
def test_a_bound_is_one_of_every_number(tmp_path, sanity, said):
    assert why_unsound(tmp_path, steps(), loss(sanity=sanity)) == said


def test_a_check_without_numbers_makes_the_run_invalid(tmp_path):
    reason = why_unsound(
        tmp_path, "".join(steps()).replace("lm loss", "loss"), loss(sanity=Sanity())
    )
    assert "looked for 'lm loss: " in reason
    assert str(tmp_path / "run.log") in reason


def test_a_metric_that_is_compared_and_checked_may_be_missing(tmp_path):
    both = memory(r"allocated: (?P<value>[^ ]+)", sanity=Sanity(below=100))
    assert "no match" in why_missing(tmp_path, steps(), both)


# ---------------------------------------------------------------------- what cannot be judged


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5,86", "'5,86' is not a number"),
        ("1e999", "'1e999' is too large for a number"),
        ("--3", "'--3' is not a number"),
        ("-3", "peak_memory is -3 MB; needed is a finite number above zero"),
        ("0", "peak_memory is 0 MB; needed is a finite number above zero"),
    ],
)
def test_a_number_that_cannot_be_judged_is_told(tmp_path, text, said):
    log = [f"{text_of}allocated: {text}\n" for text_of in steps()]
    reason = why_missing(tmp_path, log, memory())
    assert said in reason
    if text != "0":
        assert re.search(r"\(line 6\)$", reason)


@pytest.mark.parametrize("group", ["[0-9.]+", "[-+.0-9eE]+", r"\d+(?:\.\d+)?"])
def test_an_expression_that_overlooks_nan_checks_nothing(group):
    record = f"lm loss: (?P<value>{group}) "
    with pytest.raises(ValueError, match="NaN"):
        metric("loss", record, sanity=Sanity(falls=True))
    metric("loss", record, sanity=Sanity(finite=False, falls=True))
    metric("loss", f"lm loss: (?P<value>{group}|nan) ", sanity=Sanity())


@pytest.mark.parametrize(
    ("text", "expected"), [("5,856", 5856), ("1,005,856.5", 1005856.5), ("-5,856", -5856)]
)
def test_thousands_may_be_told_apart_by_commas(tmp_path, text, expected):
    log = [f"{text_of}allocated: {text}\n" for text_of in steps()]
    assert number(tmp_path, log, memory(better=None)) == expected


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("122.0K", {"unit": ""}, 122e3),
        ("1.5k", {"unit": "tokens"}, 1500),
        ("30.5G", {"unit": "MB"}, 30500),
        ("30.5 M", {"unit": "MB"}, 30.5),
        ("2M", {"unit": "GB", "printed_in": "B"}, 0.002),
    ],
)
def test_a_number_may_end_with_a_prefix(tmp_path, text, unit, expected):
    log = [f"{text_of}allocated: {text} | more\n" for text_of in steps()]
    taken = memory(r"allocated: (?P<value>[0-9.]+ ?[kKMG]?)", **unit)
    assert number(tmp_path, log, taken) == pytest.approx(expected)


# ------------------------------------------------------------------------- how far it is read


def test_reading_ends_with_the_window_where_its_lines_have_all(tmp_path):
    file = tmp_path / "run.log"
    file.write_text("".join(steps(last=4000)), encoding="utf-8")
    log = reading(file, loss(), buffer_size=4096)
    log.finish()
    assert log.position <= 4096


def test_a_metric_that_may_still_come_is_awaited(tmp_path):
    file = tmp_path / "run.log"
    log = reading(file, memory())

    def grow(text):
        with file.open("a", encoding="utf-8") as grown:
            grown.write(text)
        log.advance()
        return log.state, set(log.lacking)

    assert grow("".join(steps(last=7)))[0] is LogState.GROWING
    assert grow(line(8)) == (LogState.COMPLETE, {"peak_memory"})
    assert grow("allocated: 5\n") == (LogState.COMPLETE, set())
    assert log.finish().metrics["peak_memory"] == 5


# ------------------------------------------------------------------------------ step times


def percentiles(path, log, log_format, **given):
    every = builtin_metrics("samples/s")
    wanted = [every[name] for name in ("step_time_p50", "step_time_p95", "step_time_p99")]
    window = Window(warmup_steps=2, measured_steps=100)
    return read(
        path, log, **{"log_format": log_format, "metrics": wanted, "window": window, **given}
    )


def test_step_times_have_percentiles(tmp_path):
    took = custom_format("took", record="step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s")
    log = "".join(f"step {step} took {step}.0 s\n" for step in range(1, 103))
    run = percentiles(tmp_path, log, took)
    assert run.metrics["step_time_p50"] == 52.5
    assert run.metrics["step_time_p95"] == pytest.approx(3 + 0.95 * 99)
    assert run.metrics["step_time_p99"] == pytest.approx(3 + 0.99 * 99)


def test_the_slowest_rank_of_a_step_counts(tmp_path):
    log = "".join(
        f"dlperf step rank={rank} step={step} time={end + rank * (step % 2) / 10:.3f} loss=1\n"
        for step in range(1, 103)
        for end in (step / 2,)
        for rank in (0, 1)
    )
    run = percentiles(tmp_path, log, BUILTIN_FORMATS["dlperf"], case=case("1n2g"))
    assert run.metrics["step_time_p50"] == pytest.approx(0.55)
    assert run.metrics["step_time_p99"] == pytest.approx(0.6)


@pytest.mark.parametrize("timing", ["took {:.1f} s", "at {:.1f}", "with {:.1f}/s"])
def test_means_over_several_steps_are_refused(tmp_path, timing):
    formats = {
        "took": r"step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+)",
        "at": r"step (?P<step>[0-9]+) at (?P<timestamp>[0-9.]+)",
        "with": r"step (?P<step>[0-9]+) with (?P<samples_per_second>[0-9.]+)",
    }
    log_format = custom_format("means", record=formats[timing.split(maxsplit=1)[0]])
    log = "".join(f"step {step} {timing.format(step)}\n" for step in range(1, 300, 10))
    run = percentiles(tmp_path, log, log_format)
    assert run.status is RunStatus.OK, run.reason
    assert "every 10 steps" in run.missing["step_time_p95"]


def test_coarse_stamps_are_refused(tmp_path):
    stamps = custom_format("s", record=r"step (?P<step>[0-9]+) at (?P<timestamp>[0-9:]+)")
    log = "".join(f"step {k} at 10:{k // 60:02d}:{k % 60:02d}\n" for k in range(1, 200))
    run = percentiles(tmp_path, log, stamps)
    assert "1 s is too coarse" in run.missing["step_time_p50"]


# ------------------------------------------------------------------------------- expressions

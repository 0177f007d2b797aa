"""Limits and signals hold whatever the reader of logs is doing."""

import dataclasses
import os
import re
import signal
import subprocess

import pytest
from clusters.processes import LONG_S
from launches import places

from pytest_dlperf.formats.log_format import LogFormat, Ranks, custom_format
from pytest_dlperf.launch.gang import RunOrder
from pytest_dlperf.launch.launchers import LocalLauncher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import Stop
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.launch.watch import RunWatch
from pytest_dlperf.logs import limits
from pytest_dlperf.logs.records import RecordFinder
from pytest_dlperf.logs.run_logs import RunLogs
from pytest_dlperf.logs.throughput import LogReading
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

SLOW = LogFormat(
    name="slow",
    record=re.compile(rb"(?m)^(?:\w+\s*)+: step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+)"),
    first_step=1,
    ranks=Ranks.ONE,
)
"""As a plugin may bring one: it tries for ever on a line of words."""


def reading(log):
    return LogReading(
        log,
        number=1,
        case=Case.from_id("plain-gpt-bf16-b4-1n1g"),
        log_format=SLOW,
        window=Window(warmup_steps=2, measured_steps=8),
        estimator=Estimator.STEADY,
    )


@pytest.fixture
def log(tmp_path):
    log = tmp_path / "run_1.log"
    log.write_text("ok: step 1 took 0.1\n" + "words " * 20_000 + "\n", encoding="utf-8")
    return log


def test_an_expression_that_tries_for_ever_is_broken_off_and_told(log, monkeypatch):
    monkeypatch.setattr(limits, "PIECE_LIMIT_S", 0.3)
    before = signal.getsignal(signal.SIGVTALRM)
    run = reading(log).finish()
    assert run.status is RunStatus.INVALID
    assert "0.3 s of processor time" in str(run.reason)
    assert signal.getsignal(signal.SIGVTALRM) is before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def watch_of(log):
    return RunWatch(
        RunLogs([reading(log)]),
        folders=[log.parent],
        work_of_step=4,
        first_step_limit_s=LONG_S,
        step_limit_s=LONG_S,
        end_early=True,
        on_progress=lambda _: None,
    )


def order_of(log):
    """A run whose trainer prints what the reader never gets over, and then trains on."""
    text = log.read_text(encoding="utf-8")
    log.unlink()
    code = f"import time; print({text[:40]!r} + 'words ' * 20_000, flush=True); time.sleep(600)"
    command = NodeCommand(
        node_rank=0,
        host="localhost",
        address="127.0.0.1",
        arguments=("python3", "-c", code),
        environment={},
        working_directory=None,
        log=log,
    )
    return RunOrder(
        places=places(log), plan=lambda _: [command], time_limit_s=LONG_S, watch=watch_of(log)
    )


@pytest.mark.slow
def test_a_run_whose_log_cannot_be_read_ends(log, monkeypatch):
    monkeypatch.setattr(limits, "PIECE_LIMIT_S", 0.3)
    order = order_of(log)
    outcome = run_on_hosts(LocalLauncher(), order)
    order.watch.close()
    assert outcome.stopped.stop is Stop.BROKEN


@pytest.mark.slow
def test_a_signal_during_a_look_ends_the_run_at_once(log, monkeypatch):
    monkeypatch.setattr(limits, "PIECE_LIMIT_S", 10 * LONG_S)
    order = order_of(log)
    # A match keeps the other threads of this process waiting.
    has_printed = f"until test -s '{log}'; do sleep 0.1; done"
    with (
        subprocess.Popen(["/bin/sh", "-c", f"{has_printed}; sleep 1; kill -INT {os.getpid()}"]),
        pytest.raises(KeyboardInterrupt),
    ):
        run_on_hosts(LocalLauncher(), order)
    record = (log.parent / "run_1" / "command.json").read_text(encoding="utf-8")
    assert "SIGINT" in record
    assert "processor time" not in record


def test_a_format_of_a_plugin_cannot_hang_a_session(suite):
    suite.pytester.makeconftest(
        "import re\n"
        "from pytest_dlperf.formats.log_format import LogFormat, Ranks\n"
        f"SLOW = LogFormat(name='slow', record=re.compile({SLOW.record.pattern!r}), first_step=1,\n"
        "    ranks=Ranks.ONE)\n"
        "def pytest_dlperf_log_formats(config):\n"
        "    return [SLOW]\n"
    )
    suite.system_file(
        "framework: plain\nmodel: gpt\nunit: samples/s\nlog: {name: gpt, format: slow}\n"
        "window: {warmup_steps: 2, measured_steps: 8}\n"
        "cases:\n  - {precision: bf16, batch_per_device: 4, topologies: [1n1g]}\n"
    )
    folder = suite.path / "night" / "1n1g"
    folder.mkdir(parents=True)
    (folder / "gpt_b4_bf16_1.log").write_text("words " * 20_000 + "\n", encoding="utf-8")
    _, results = suite.judge(
        "-k", "gpt", "--dlperf-logs", f"plain-gpt={folder.parent}", cluster="local"
    )
    [run] = results["cases"][0]["measurement"]["runs"]
    assert run["status"] == "invalid"
    assert f"{limits.PIECE_LIMIT_S:g} s of processor time" in run["reason"]


@pytest.mark.parametrize("every", [None, 1])
def test_a_block_without_a_step_costs_one_look_however_many_stand_before_it(
    tmp_path, monkeypatch, every
):
    """As where gigabytes of other lines stand before the first step."""
    looks = []
    find = RecordFinder.find

    def counted(finder, block):
        looks.append(block.offset)
        return find(finder, block)

    monkeypatch.setattr(RecordFinder, "find", counted)
    log = tmp_path / "late.log"
    step = "" if every else r"(?P<step>[0-9]+) "
    taken = {}
    for size in (2**21, 2**22):
        with log.open("wb") as file:
            file.seek(size)
            file.write(b"".join(b"\nstep %d took 0.5 s" % number for number in range(1, 20)))
        looks.clear()
        late = dataclasses.replace(
            reading(log),
            log_format=custom_format(
                "late", record=f"step {step}.*took (?P<seconds>[0-9.]+)", step_every=every
            ),
            buffer_size=2**12,
        )
        assert late.finish().metrics["throughput"] == 8
        taken[size] = len(looks)
    assert taken[2**22] - taken[2**21] == 2**21 / 2**12

"""Signals are heard whatever the reader of logs is doing."""

import dataclasses
import os
import subprocess

import pytest
from clusters.processes import LONG_S
from launches import nodes_with

from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.log_format import LogFormat, Ranks, custom_format
from pytest_dlperf.launch.launchers import LocalLauncher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import RunOrder
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.launch.watch import RunWatch
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.logs.records import RecordFinder
from pytest_dlperf.logs.run import RunLogs
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Window

SLOW = LogFormat(
    name="slow",
    record=Expression(r"^(?:\w+\s*)+: step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+)"),
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
        nodes=nodes_with(log),
        plan=lambda _: [command],
        time_limit_s=LONG_S,
        look=watch_of(log).look,
    )


@pytest.mark.slow
def test_a_signal_during_a_look_ends_the_run_at_once(log):
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

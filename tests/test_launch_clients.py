"""Clients that would outlive the process that has started them: ssh and srun, if nobody answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from clusters.processes import Process, end, processes_with, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Starts clients as a launcher does, which do not care for the end of their input.
PROGRAM = """\
import signal, subprocess, sys, time
from pytest_dlperf.launch import clients
def start(program):
    command = [sys.executable, "-S", "-c", program, sys.argv[1]]
    client = subprocess.Popen(command, start_new_session=True)
    clients.end_with_this_process(client.pid)
    return client
start("import time; time.sleep(60)")
start("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
forgotten = start("import time; time.sleep(60)")
clients.has_ended(forgotten.pid)
print(forgotten.pid, flush=True)
{end}
"""


@pytest.fixture
def text(tmp_path: Path) -> Iterator[str]:
    """What the clients of a test are found by."""
    text = str(tmp_path / "client")
    yield text
    end(processes_with(text))


def clients(text: str) -> list[Process]:
    return [process for process in processes_with(text) if "sleep" in process.command]


@pytest.mark.parametrize("last", ["time.sleep(60)", "sys.exit()"])
def test_clients_end_after_the_process_that_has_started_them(text: str, last: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(end=last), text],
        stdout=subprocess.PIPE,
        env={**os.environ, "WHOSE": text},
    ) as process:
        assert process.stdout is not None
        forgotten = int(process.stdout.readline())
        watches = processes_with(text, "launch/clients.py")
        assert len(watches) == 1
        if "sleep" in last:
            process.send_signal(signal.SIGKILL)
    wait_until(lambda: len(clients(text)) == 1, what="the end of the clients", limit_s=5)
    assert [client.pid for client in clients(text)] == [forgotten]
    wait_until(lambda: not watches[0].lives(), what="the end of what has watched them")

"""A node's state follows from the reports of its supervisor; its client ends with this process."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from clusters.processes import Process, end, processes_with, wait_until
from launches import places

from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.node_progress import NodeState
from pytest_dlperf.launch.supervisor_client import SupervisorClient

PREPARED = {"prepared": True, "port": 4711}


class Scripted(Launcher):
    """Instead of a supervisor, something that prints these lines and then ends."""

    name = "scripted"
    remote = False

    def __init__(self, *lines: object, errors: str = "") -> None:
        super().__init__()
        self._errors = errors
        self._text = "".join(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines
        )

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        del host, program, alongside
        says = f"printf %s {shlex.quote(self._text)}; printf %s {shlex.quote(self._errors)} >&2"
        return ["sh", "-c", says]


class FarAway(Scripted):
    """The same at the end of a connection."""

    remote = True


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Callable[..., SupervisorClient]]:
    """Make the client that has had these reports, to the end of them."""
    clients: list[SupervisorClient] = []

    def make(*lines: object, launcher: Launcher | None = None) -> SupervisorClient:
        [place] = places(tmp_path / f"{len(clients)}.log")
        client = SupervisorClient(launcher or Scripted(*lines), place, "run.0.")
        clients.append(client)
        while not client.is_gone:
            client.receive()
        return client

    yield make
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ([], NodeState.CONNECTING),
        ([{"ready": "3.6"}], NodeState.READY),
        ([{"ready": "3.6"}, {"busy": "somebody"}], NodeState.BUSY),
        ([{"ready": "3.6"}, {"cannot_prepare": "why"}], NodeState.UNUSABLE),
        ([{"ready": "3.6"}, PREPARED], NodeState.PREPARED),
        ([{"ready": "3.6"}, PREPARED, {"cannot_start": ""}], NodeState.NOT_STARTED),
        ([{"ready": "3.6"}, PREPARED, {"started": 7}], NodeState.RUNNING),
        ([{"ready": "3.6"}, PREPARED, {"started": 7}, {"ended": 0}], NodeState.EXITED),
        ([{"ready": "3.6"}, PREPARED, {"final": {}}], NodeState.CLEANED_UP),
    ],
    ids=lambda value: value.name if isinstance(value, NodeState) else "",
)
def test_reports_move_a_node_on(
    reported: Callable[..., SupervisorClient], lines: list[object], state: NodeState
) -> None:
    assert reported(*lines).state is state


def test_what_is_printed_on_the_way_is_no_report(reported: Callable[..., SupervisorClient]) -> None:
    client = reported("Welcome!", PREPARED, {"ended": 3}, "[1]", {"ready": "3.6"})
    assert (client.state, client.port, client.exit_code) == (NodeState.READY, None, None)


def test_a_report_out_of_turn_moves_nothing(reported: Callable[..., SupervisorClient]) -> None:
    client = reported({"ready": "3.6"}, {"started": 7}, {"ready": "3.6"}, {"busy": "somebody"})
    assert client.state is NodeState.BUSY


def test_only_what_was_prepared_and_not_cleaned_up_needs_a_sweep(
    reported: Callable[..., SupervisorClient],
) -> None:
    ready = {"ready": "3.6"}
    needs = [
        reported(ready, *lines).needs_sweep
        for lines in (
            [],
            [{"busy": "somebody"}],
            [PREPARED],
            [PREPARED, {"started": 7}],
            [PREPARED, {"started": 7}, {"ended": 1}],
            [PREPARED, {"started": 7}, {"ended": 1}, {"final": {}}],
        )
    ]
    assert needs == [False, False, True, True, True, False]


def test_the_end_without_a_word_is_told_with_what_was_reported(
    reported: Callable[..., SupervisorClient],
) -> None:
    killed = reported({"ready": "3.6"}, PREPARED, {"started": 7})
    assert (killed.failed, killed.is_broken_off) == (True, True)
    [problem] = killed.close()
    assert "its supervisor was killed (" in problem
    clean = reported({"ready": "3.6"}, PREPARED, {"started": 7}, {"ended": 0}, {"final": {}})
    assert (clean.failed, clean.is_broken_off, clean.close()) == (False, False, [])
    told = reported({"ready": "3.6"}, {"signal": "SIGTERM"}, {"final": {"left": [9]}})
    assert [("SIGTERM" in text, "process 9 " in text) for text in told.close()] == [
        (True, False),
        (False, True),
    ]


def test_what_of_an_earlier_run_was_found_is_told_and_what_failed_at_the_end(
    reported: Callable[..., SupervisorClient],
) -> None:
    ready = {"ready": "3.6"}
    found = reported(ready, {"earlier": [7, 8]}, PREPARED, {"started": 7}, {"final": {}})
    assert "processes 7, 8 of an earlier run" in found.notes[0]
    failed = reported(ready, PREPARED, {"at_end": "docker rm x: exit status 1"}, {"final": {}})
    assert failed.notes == []
    assert "docker rm x: exit status 1" in failed.close()[0]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (
            "step 7\nConnection to gpu1 closed by remote host.\nbye\n",
            "the connection is lost: Connection to gpu1 closed by remote host.",
        ),
        ("step 7\n", "its supervisor was killed (sh"),
        ("", "its supervisor was killed (sh"),
    ],
    ids=["lost", "killed", "silent"],
)
def test_a_sudden_end_is_a_lost_connection_only_where_the_client_says_so(
    reported: Callable[..., SupervisorClient], errors: str, said: str
) -> None:
    lines = [{"ready": "3.6"}, PREPARED, {"started": 7}]
    [problem] = reported(launcher=FarAway(*lines, errors=errors)).close()
    assert said in problem


# ----------------------------------------------------------------------- clients that nobody ends


# Starts clients as a launcher does, which do not care for the end of their input.
PROGRAM = """\
import signal, subprocess, sys, time
from pytest_dlperf.launch import clients
def start(program, through=list):
    command = through([sys.executable, "-S", "-c", program, sys.argv[1]])
    client = subprocess.Popen(command, start_new_session=True)
    clients.end_with_this_process(client.pid)
    return client
start("import time; time.sleep(600)")
start("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
forgotten = start("import time; time.sleep(600)")
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


@pytest.mark.parametrize("last", ["time.sleep(600)", "sys.exit()"])
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
    wait_until(lambda: len(clients(text)) == 1, what="the end of the clients")
    assert [client.pid for client in clients(text)] == [forgotten]
    wait_until(lambda: not watches[0].lives(), what="the end of what has watched them")


def test_hosts_are_swept_after_the_process_that_has_started_their_run(tmp_path: Path) -> None:
    """Each command gets its input whole, in the folder of the process; a run that is over, none."""
    program = (
        "import sys; from pytest_dlperf.launch import clients\n"
        "def sweep(file): return ['sh', '-c', f'cat > {file}.new; mv {file}.new {file}']\n"
        "clients.sweep_after_this_process('over', [(sweep('never'), '')])\n"
        "order = '\\0\\xff' * 100_000\n"
        "sweeps = [(['/no/such/ssh'], ''), (sweep('done'), order)]\n"
        "clients.sweep_after_this_process('run', sweeps)\n"
        "clients.is_over('over')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    wait_until((tmp_path / "done").exists, what="the sweep")
    assert (tmp_path / "done").read_bytes() == b"\0\xff" * 100_000
    assert not (tmp_path / "never").exists()


def test_the_kernel_ends_a_client_of_which_nothing_is_left_that_would(text: str) -> None:
    """``srun`` would stay for ever where pytest and the small program are killed."""
    program = PROGRAM.replace('start("import time; time.sleep(600)")', "", 1)
    program = program.replace(
        "forgotten = start(", "forgotten = start(through=clients.dying_with_parent, program="
    )
    with subprocess.Popen(
        [sys.executable, "-c", program.format(end="time.sleep(600)"), text],
        stdout=subprocess.PIPE,
        env={**os.environ, "WHOSE": text},
    ) as process:
        assert process.stdout is not None
        client = int(process.stdout.readline())
        wait_until(lambda: any(one.pid == client for one in clients(text)), what="the client")
        # It has become itself then.
        wait_until(lambda: len(processes_with(text, "launch/clients.py")) == 1)
        [watch] = processes_with(text, "launch/clients.py")
        os.kill(watch.pid, signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: all(one.pid != client for one in clients(text)), what="its end")

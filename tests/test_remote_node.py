"""A node's state follows from the reports of its supervisor; its client ends with this process."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from clusters.processes import processes_with, wait_until
from launches import nodes_with

from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.remote_node import NodeState, RemoteNode

PREPARED = {"prepared": True}


class Scripted(Launcher):
    """Instead of a supervisor, something that prints these lines and then ends."""

    name = "scripted"
    remote = False

    def __init__(self, *lines, errors=""):
        super().__init__()
        self._errors = errors
        self._text = "".join(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines
        )

    def command(self, host, program, *, alongside=False):
        del host, program, alongside
        says = f"printf %s {shlex.quote(self._text)}; printf %s {shlex.quote(self._errors)} >&2"
        return ["sh", "-c", says]


class FarAway(Scripted):
    """The same at the end of a connection."""

    remote = True


@pytest.fixture
def reported(tmp_path):
    """Make the client that has had these reports, to the end of them."""
    clients = []

    def make(*lines, launcher=None):
        [node] = nodes_with(tmp_path / f"{len(clients)}.log")
        client = RemoteNode(launcher or Scripted(*lines), node, "run.0.")
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
        ([{"ready": "3.6"}, PREPARED], NodeState.PREPARED),
        ([{"ready": "3.6"}, PREPARED, {"cannot": "why"}], NodeState.UNUSABLE),
        ([{"ready": "3.6"}, PREPARED, {"started": 7}], NodeState.RUNNING),
        ([{"ready": "3.6"}, PREPARED, {"started": 7}, {"ended": 0}], NodeState.EXITED),
        ([{"ready": "3.6"}, PREPARED, {"final": {}}], NodeState.CLEANED_UP),
    ],
    ids=lambda value: value.name if isinstance(value, NodeState) else "",
)
def test_reports_move_a_node_on(reported, lines, state):
    assert reported(*lines).state is state


def test_what_is_printed_on_the_way_is_no_report(reported):
    client = reported("Welcome!", PREPARED, {"ended": 3}, "[1]", {"ready": "3.6"})
    assert (client.state, client.exit_code) == (NodeState.READY, None)


def test_only_what_was_prepared_and_not_cleaned_up_needs_a_sweep(
    reported,
):
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
    reported,
):
    killed = reported({"ready": "3.6"}, PREPARED, {"started": 7})
    assert killed.failed
    [problem] = killed.close()
    assert "its supervisor was killed (" in problem
    clean = reported({"ready": "3.6"}, PREPARED, {"started": 7}, {"ended": 0}, {"final": {}})
    assert (clean.failed, clean.close()) == (False, [])
    told = reported({"ready": "3.6"}, {"signal": "SIGTERM"}, {"final": {"left": [9]}})
    assert [("SIGTERM" in text, "process 9 " in text) for text in told.close()] == [
        (True, False),
        (False, True),
    ]


def test_what_of_an_earlier_run_was_found_is_told_and_what_failed_at_the_end(
    reported,
):
    ready = {"ready": "3.6"}
    found = reported(ready, {"note": "ended process 7"}, PREPARED, {"started": 7}, {"final": {}})
    assert found.notes == ["ended process 7"]
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
def test_a_sudden_end_is_a_lost_connection_only_where_the_client_says_so(reported, errors, said):
    lines = [{"ready": "3.6"}, PREPARED, {"started": 7}]
    [problem] = reported(launcher=FarAway(*lines, errors=errors)).close()
    assert said in problem


def test_the_kernel_ends_a_client_with_the_process_that_has_started_it(tmp_path):
    """``srun`` would stay for ever where pytest is killed and the network cut."""
    text = str(tmp_path / "client")
    program = """\
import subprocess, sys, time
from pytest_dlperf.launch.remote_call import dying_with_parent
command = [sys.executable, "-S", "-c", "import time; time.sleep(600)", sys.argv[1]]
print(subprocess.Popen(dying_with_parent(command), start_new_session=True).pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, text], stdout=subprocess.PIPE, env={**os.environ}
    ) as process:
        try:
            client = int(process.stdout.readline())

            def lives():
                return any(one.pid == client for one in processes_with(text))

            wait_until(lives, what="the client")
        finally:
            process.kill()
    wait_until(lambda: not lives(), what="its end")

"""A node's state follows from the reports of its supervisor, and from nothing else."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from launches import places

from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.supervisor_client import NodeState, SupervisorClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_dlperf.launch.hosts import Host

PREPARED = {"prepared": True, "port": 4711}


class Scripted(Launcher):
    """Instead of a supervisor, something that prints these lines and then ends."""

    name = "scripted"
    remote = False

    def __init__(self, *lines: object) -> None:
        super().__init__()
        self._text = "".join(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines
        )

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        del host, program, alongside
        return ["sh", "-c", f"printf %s {shlex.quote(self._text)}"]


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Callable[..., SupervisorClient]]:
    """Make the client that has had these reports, to the end of them."""
    clients: list[SupervisorClient] = []

    def make(*lines: object) -> SupervisorClient:
        [place] = places(tmp_path / f"{len(clients)}.log")
        client = SupervisorClient(Scripted(*lines), place, "run.0.")
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
        ([{"ready": "3.6"}, {"busy": True}], NodeState.BUSY),
        ([{"ready": "3.6"}, {"cannot_prepare": "why"}], NodeState.UNUSABLE),
        ([{"ready": "3.6"}, PREPARED], NodeState.PREPARED),
        ([{"ready": "3.6"}, PREPARED, {"cannot_start": None}], NodeState.NOT_STARTED),
        ([{"ready": "3.6"}, PREPARED, {"started": 7}], NodeState.RUNNING),
        ([{"ready": "3.6"}, PREPARED, {"started": 7}, {"ended": 0}], NodeState.EXITED),
        ([{"ready": "3.6"}, PREPARED, {"clean": True}], NodeState.CLEANED_UP),
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
    client = reported({"ready": "3.6"}, {"started": 7}, {"ready": "3.6"}, {"busy": True})
    assert client.state is NodeState.BUSY


def test_only_what_was_prepared_and_not_cleaned_up_needs_a_sweep(
    reported: Callable[..., SupervisorClient],
) -> None:
    ready = {"ready": "3.6"}
    needs = [
        reported(ready, *lines).needs_sweep
        for lines in (
            [],
            [{"busy": True}],
            [PREPARED],
            [PREPARED, {"started": 7}],
            [PREPARED, {"started": 7}, {"ended": 1}],
            [PREPARED, {"started": 7}, {"ended": 1}, {"clean": True}],
        )
    ]
    assert needs == [False, False, True, True, True, False]


def test_the_end_without_a_word_is_told_with_what_was_reported(
    reported: Callable[..., SupervisorClient],
) -> None:
    killed = reported({"ready": "3.6"}, PREPARED, {"started": 7})
    assert (killed.failed, killed.is_broken_off) == (True, True)
    [problem] = killed.close()
    assert "its supervisor and its guardian were killed (" in problem
    clean = reported({"ready": "3.6"}, PREPARED, {"started": 7}, {"ended": 0}, {"clean": True})
    assert (clean.failed, clean.is_broken_off, clean.close()) == (False, False, [])
    told = reported({"ready": "3.6"}, {"signal": "SIGTERM"}, {"clean": False, "left": [9]})
    assert [("SIGTERM" in text, "process 9 " in text) for text in told.close()] == [
        (True, False),
        (False, True),
    ]


def test_who_was_killed_is_told_and_what_of_an_earlier_run_was_found(
    reported: Callable[..., SupervisorClient],
) -> None:
    ready = {"ready": "3.6"}
    by_guardian = reported(
        ready,
        {"earlier": [7, 8]},
        PREPARED,
        {"started": 7},
        {"supervisor_killed": "was killed by SIGABRT"},
        {"clean": True},
    )
    assert (by_guardian.is_killed, by_guardian.needs_sweep) == (True, False)
    assert "processes 7, 8 of an earlier run" in str(by_guardian.told)
    [problem] = by_guardian.close()
    assert "its supervisor was killed by SIGABRT" in problem
    alone = reported(ready, PREPARED, {"started": 7}, {"guardian_killed": True}, {"clean": True})
    assert (alone.is_killed, "guardian" in alone.close()[0]) == (True, True)
    failed = reported(ready, PREPARED, {"at_end": "docker rm x: exit status 1"}, {"clean": True})
    assert (failed.is_killed, failed.told) == (False, None)
    assert "docker rm x: exit status 1" in failed.close()[0]

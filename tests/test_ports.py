"""Ports in a row that a run's nodes have for themselves, the same on each."""

from __future__ import annotations

import random
import socket
import sys
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from clusters.ports import free_ports, worker_number
from clusters.processes import wait_until
from launches import THIS_MACHINE, places

from pytest_dlperf.config.launch_spec import LaunchSpec
from pytest_dlperf.config.launch_variables import LaunchVariables
from pytest_dlperf.launch.gang import RunOrder
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import LocalLauncher
from pytest_dlperf.launch.plan import plan_run, run_dir
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window

DEVICES: Final = 2
# Each process of a node listens where the node's own address and its device say, as Paddle's do.
TRAINER: Final = """\
import pathlib, socket, sys, time
address, first, devices, go = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
servers = [socket.socket() for _ in range(devices)]
for port, server in enumerate(servers, first):
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen()
print(first, flush=True)
while not pathlib.Path(go).exists():
    time.sleep(0.01)
"""


@pytest.fixture
def hosts(worker_id: str) -> list[Host]:
    """Two hosts that this machine plays, at addresses of this worker's own."""
    names = [f"127.0.{worker_number(worker_id)}.{number}" for number in (2, 3)]
    return [Host(name=name, address=name) for name in names]


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch, worker_id: str) -> list[int]:
    """The rows that runs try, in turn."""
    tried = free_ports(30, worker=worker_number(worker_id))[::10]
    left = iter([tried[0], *tried])
    monkeypatch.setattr(random, "choice", lambda _: next(left))
    return tried


class Run(threading.Thread):
    """A run of a node on each host, which goes on until it is told to end."""

    numbers = count()

    def __init__(
        self, folder: Path, hosts: Sequence[Host], *, address: str = "{node_address}"
    ) -> None:
        super().__init__()
        folder = folder / f"run{next(self.numbers)}"
        folder.mkdir()
        self._go = folder / "go"
        log = folder / "r18_b8_fp32_1.log"
        self._logs = [log, *(run_dir(log) / f"node{rank}.log" for rank in range(1, len(hosts)))]
        case = Case.from_id(f"pytorch-resnet18-fp32-b8-{len(hosts)}n{DEVICES}g")
        words = (address, "{first_port}", "{devices_per_node}", str(self._go))
        self._order = RunOrder(
            places=places(*self._logs, devices=DEVICES, hosts=hosts),
            plan=lambda nodes: plan_run(
                LaunchSpec(command=(sys.executable, "-c", TRAINER, *words)),
                case=case,
                window=Window(warmup_steps=1, measured_steps=1),
                settling_steps=0,
                system_directory=folder,
                run=1,
                nodes=nodes,
                variables=LaunchVariables(),
                python=sys.executable,
                log=log,
            ),
            time_limit_s=60,
            row=DEVICES,
        )
        self.succeeded = False
        self.start()

    def run(self) -> None:
        self.succeeded = run_on_hosts(LocalLauncher(), self._order).succeeded

    def first_ports(self) -> set[int]:
        """What its nodes were told, once all of them listen."""

        def told() -> bool:
            return all(log.exists() and log.read_text().endswith("\n") for log in self._logs)

        wait_until(lambda: told() or not self.is_alive(), what="nodes that listen")
        return {int(log.read_text()) for log in self._logs}

    def end(self) -> None:
        self._go.touch()
        self.join()
        assert self.succeeded, [log.read_text() for log in self._logs]


def test_two_runs_on_the_same_hosts_have_rows_of_their_own(
    tmp_path: Path, hosts: list[Host], choices: list[int]
) -> None:
    first = Run(tmp_path, hosts)
    assert first.first_ports() == {choices[0]}
    second = Run(tmp_path, hosts)
    assert second.first_ports() == {choices[1]}
    first.end()
    second.end()


def test_a_row_of_which_any_node_lacks_a_port_is_passed_over(
    tmp_path: Path, hosts: list[Host], choices: list[int]
) -> None:
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind((hosts[1].address, choices[0] + DEVICES - 1))
        foreign.listen()
        # The first row is tried twice.
        run = Run(tmp_path, hosts)
        assert run.first_ports() == {choices[1]}
        run.end()


@pytest.mark.usefixtures("choices")
def test_nodes_that_are_one_machine_share_its_row(tmp_path: Path) -> None:
    """It is for the trainer to tell them apart there, here by addresses of its own."""
    run = Run(tmp_path, [THIS_MACHINE] * 2, address="127.0.9.1{node_rank}")
    assert len(run.first_ports()) == 1
    run.end()

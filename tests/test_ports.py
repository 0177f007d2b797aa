"""Ports that a run's nodes have for themselves, and those in a row that are the same on each."""

import sys
import uuid

from launches import THIS_MACHINE, nodes_with

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.launch.launchers import LocalLauncher
from pytest_dlperf.launch.plan import first_port, plan_run, run_dir
from pytest_dlperf.launch.record import RunOrder
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window

DEVICES = 2
SAYS = "import sys; print(*sys.argv[1:])"


def told_ports(folder):
    """Run two nodes on this machine; the first port and its own that each was told."""
    log = folder / "r18_b8_fp32_1.log"
    logs = [log, run_dir(log) / "node1.log"]
    words = ("{first_port}", "{node_port}")
    order = RunOrder(
        nodes=nodes_with(*logs, devices=DEVICES, hosts=[THIS_MACHINE] * 2),
        plan=lambda nodes: plan_run(
            Launch(command=(sys.executable, "-c", SAYS, *words)),
            case=Case.from_id(f"pytorch-resnet18-fp32-b8-2n{DEVICES}g"),
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
    )
    assert run_on_hosts(LocalLauncher(), order).succeeded
    return [[int(word) for word in one.read_text().split()] for one in logs]


def test_nodes_of_one_machine_have_a_port_each_behind_those_in_a_row(tmp_path):
    (first, own), (same, other) = told_ports(tmp_path)
    assert same == first
    assert (own, other) == (first + DEVICES, first + DEVICES + 1)


def test_ports_are_by_the_number_of_the_run():
    assert len({first_port(uuid.uuid4().hex) for _ in range(10)}) > 1

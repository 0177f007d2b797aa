"""Runs that tests launch by hand, on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.launchers import ADDRESS, Launcher, LocalLauncher
from pytest_dlperf.launch.plan import NodeCommand, plan_run, run_dir
from pytest_dlperf.launch.record import LaunchOutcome, RunOrder
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window

THIS_MACHINE = Host(name="localhost", address=ADDRESS, devices=None)


def nodes_with(*logs: Path, devices: int = 1, hosts: Sequence[Host] = ()) -> tuple[Node, ...]:
    """Nodes that need no host for themselves; without ``hosts`` all are on this machine."""
    return tuple(
        Node(host=host, device_ids=tuple(range(devices)), log=log)
        for log, host in zip(logs, hosts or [THIS_MACHINE] * len(logs), strict=True)
    )


def run_commands(
    commands: Sequence[NodeCommand], *, time_limit_s: float, launcher: Launcher | None = None
) -> LaunchOutcome:
    """Run what is planned already."""
    order = RunOrder(
        nodes=nodes_with(*(command.log for command in commands)),
        plan=lambda _: commands,
        time_limit_s=time_limit_s,
    )
    return run_on_hosts(launcher or LocalLauncher(), order)


def run_spec(
    spec: Launch,
    case: Case,
    window: Window,
    log: Path,
    say: Callable[[str], None] = lambda _: None,
) -> LaunchOutcome:
    """Plan a case and run it to its end."""
    topology = case.topology
    logs = [run_dir(log) / f"node{rank}.log" for rank in range(1, topology.nodes)]
    order = RunOrder(
        nodes=nodes_with(log, *logs, devices=topology.devices_per_node),
        plan=lambda nodes: plan_run(
            spec,
            case=case,
            window=window,
            settling_steps=0,
            system_directory=log.parent,
            run=1,
            nodes=nodes,
            variables=LaunchVariables(),
            python=sys.executable,
            log=log,
        ),
        time_limit_s=spec.time_limit_s,
        say=say,
    )
    return run_on_hosts(LocalLauncher(), order)

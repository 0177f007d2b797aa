"""What a run costs beyond its trainer: starting and ending it, by number of nodes.

    python benchmarks/launch_overhead.py [--launchers local,ssh] [--nodes 1,2,4,8,16,32,64]
                                         [--repeats 5]

Two trainers. The first does nothing: the time until the run is over and cleaned up is compared with
a floor, in turn, which starts as many plain programs at once: `true` itself, or `ssh HOST true`.
The second prints the steps that count and then goes on, but ends at once on SIGTERM: the time from
its last such step until nothing of the run is left must not hold the grace that others need.

All nodes are this machine, so their supervisors share its cores. The hosts of ssh are loopback
addresses with an sshd each, which this script starts and ends.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, Popen
from typing import TYPE_CHECKING, TypeVar

from timing import interleaved, seconds

from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.launchers import LocalLauncher, SshLauncher
from pytest_dlperf.launch.plan import plan_run, run_dir
from pytest_dlperf.launch.record import RunOrder
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.launch.watch import RunWatch
from pytest_dlperf.measure.run import logs_of
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.config.systems import System
    from pytest_dlperf.launch.launchers import Launcher

TESTS = Path(__file__).resolve().parent.parent / "tests"

SYSTEM = """\
framework: idle
model: {name}
unit: samples/s
log: {{name: idle, format: {{record: 'step (?P<step>[0-9]+) at (?P<timestamp>[0-9.]+)'}}}}
window: {{warmup_steps: 1, measured_steps: 1}}
launch: {{devices: cpu, command: [sh, -c, '{script}']}}
cases: [{{precision: fp32, batch_per_device: 1, topologies: [{topologies}]}}]
"""
NOTHING = "exec true"
# Two stamps that differ by far more than the clock's resolution; then the trainer stays.
STEPS = 'echo "step 1 at 1.0"; echo "step 2 at $(date +%s.%N)"; exec sleep 600'


W = TypeVar("W", bound=RunWatch)


def write_system(folder: Path, name: str, script: str, nodes: Sequence[int]) -> System:
    """Declare a trainer."""
    file = folder / f"{name}.yaml"
    topologies = ", ".join(f"{count}n1g" for count in nodes)
    text = SYSTEM.format(name=name, script=script, topologies=topologies)
    file.write_text(text)
    return load_systems([file], dict(BUILTIN_FORMATS))[f"idle-{name}"]


def run(
    launcher: Launcher, hosts: Sequence[Host], system: System, folder: Path, kind: type[W]
) -> W:
    """Run the case of so many nodes to its end, as a test would, and give its watch.

    Raises:
        RuntimeError: It did not end well.
    """
    spec = system.launch
    topology = Topology(nodes=len(hosts), devices_per_node=1)
    case = next(case for case in system.cases if case.topology == topology)
    if spec is None:
        raise RuntimeError("the system has no launch")
    log = folder / "idle.log"
    logs = [log, *(run_dir(log) / f"node{rank}.log" for rank in range(1, len(hosts)))]
    watch = kind(
        logs_of(system, case, Estimator.STEADY, run=1, logs=logs),
        folders=[log.parent for log in logs],
        work_of_step=case.global_batch,
        first_step_limit_s=spec.first_step_limit_s,
        step_limit_s=spec.step_limit_s,
        end_early=True,
        on_progress=lambda _: None,
    )
    order = RunOrder(
        nodes=tuple(
            Node(
                host=host,
                device_ids=(0,),
                locked_devices=(0,),
                lock_scope=f"{folder}/{host.name}",
                log=log,
            )
            for host, log in zip(hosts, logs, strict=True)
        ),
        plan=lambda nodes: plan_run(
            spec,
            case=case,
            window=system.window,
            settling_steps=0,
            system_directory=folder,
            run=1,
            nodes=nodes,
            variables=LaunchVariables(),
            python=sys.executable,
            log=log,
        ),
        time_limit_s=spec.time_limit_s,
        look=watch.look,
    )
    outcome = run_on_hosts(launcher, order)
    if not outcome.succeeded:
        raise RuntimeError(f"{len(hosts)} nodes: {outcome.stopped}, {outcome.error}")
    return watch


def start_plainly(commands: Sequence[Sequence[str]]) -> None:
    """The floor: the same number of programs at once, waited for."""
    started = [Popen(command, stdin=DEVNULL) for command in commands]
    if failed := [process.args for process in started if process.wait() != 0]:
        raise RuntimeError(f"{failed} failed")


@contextmanager
def cluster(name: str, nodes: int, folder: Path) -> Iterator[tuple[Launcher, list[Host]]]:
    """Hosts that play on this machine, and the way to them."""
    names = [f"127.0.77.{number}" for number in range(1, nodes + 1)]
    hosts = [Host(name=name, address=name) for name in names]
    if name == "local":
        yield LocalLauncher(), hosts
        return
    sys.path.append(str(TESTS))
    from clusters.ports import free_ports
    from clusters.ssh import SshHosts

    ssh = SshHosts(folder=folder, names=names, port=free_ports(1, worker=19)[0])
    try:
        ssh.set_up()
        yield SshLauncher(ssh.arguments("")[:-1], sys.executable), hosts
    finally:
        ssh.tear_down()


def sides_of(
    launcher: Launcher,
    hosts: Sequence[Host],
    systems: tuple[System, System],
    folders: Iterator[Path],
) -> dict[str, Callable[[], float]]:
    """What is measured: the floor, a run of nothing, and the end of a run with steps."""
    nothing, steps = systems
    plain = [launcher.command(host, ["true"]) for host in hosts]

    def end() -> float:
        folder = next(folders)
        run(launcher, hosts, steps, folder, RunWatch)
        return time.time() - float((folder / "idle.log").read_text().split()[-1])

    return {
        "floor": lambda: seconds(lambda: start_plainly(plain)),
        "run": lambda: seconds(lambda: run(launcher, hosts, nothing, next(folders), RunWatch)),
        "end": end,
    }


def compare(name: str, nodes: Sequence[int], repeats: int, folder: Path) -> None:
    """Measure and print one launcher."""
    nothing = write_system(folder, "nothing", NOTHING, nodes)
    steps = write_system(folder, "steps", STEPS, nodes)
    folders = (folder / f"run{number}" for number in itertools.count())
    with cluster(name, max(nodes), folder) as (launcher, hosts):
        for count in nodes:
            sides = sides_of(launcher, hosts[:count], (nothing, steps), folders)
            # The first round does not count.
            taken = interleaved(sides, repeats + 1)
            floor, ours, end = (median(found[1:]) for found in taken.values())
            added = ours - floor
            print(
                f"{name}, {count} nodes: {ours:.2f} s, floor {floor:.2f} s; added {added:.2f} s, "
                f"{added / count:.3f} s per node; from the last step that counts to the end "
                f"{end:.2f} s (medians of {repeats})",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--launchers", default="local,ssh")
    parser.add_argument("--nodes", default="1,2,4,8,16,32,64")
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each kind")
    options = parser.parse_args()
    nodes = [int(count) for count in options.nodes.split(",")]
    for name in options.launchers.split(","):
        with tempfile.TemporaryDirectory(prefix="launch_overhead_") as folder:
            compare(name, nodes, options.repeats, Path(folder))


if __name__ == "__main__":
    main()

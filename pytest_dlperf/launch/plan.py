"""The plan of a run: what each of its nodes executes, where, and where its output goes.

A plan is made from a system's launch entry, the case, the nodes that were leased and what the user
set. Arguments reach the program as they are: no shell reads them, so a value never becomes a
second argument, whatever is in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

import pytest_dlperf
from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.launch_keys import Devices, StartOn, Steps
from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.config.template import EXTRA_ARGUMENTS, case_fields, fill
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.node.accelerators import confined

TRAINER: Final = "DLPERF_STEPS"
"""The environment variable that says which trainer's steps are printed (``launch.steps``)."""
SCRATCH: Final = "/tmp"  # noqa: S108 - a run makes a folder of its own there
"""Runs have their folders there on each node, unless the cluster says where."""
PORTS: Final = range(20_000, 28_000)
"""The ports of a run begin there: below what systems give out, and what torchrun takes itself."""
EXAMPLE_PORT: Final = 29500
"""Stands in a plan that is only shown for the port that a run would be given."""
_SERVING: Final = "serving.py"
_LOOK_BYTES: Final = 1 << 26
_PACKAGE: Final = Path(str(pytest_dlperf.__file__)).parent
_RUN_DIGITS: Final = 12
"""So many of a run's number tell its folder: a socket in there may have a path of 107 bytes."""


class NodeCommand(Struct, frozen=True, kw_only=True):
    """The command of one node of one run, ready to start.

    ``environment`` is only what the launch entry and the user add, beside ``python_path``, folders
    that are put in front of what ``PYTHONPATH`` names. The node's output, errors
    included, goes to ``log``, and with it the lines of ``log_file``, as the program names it; with
    ``log_file_whole`` in one piece when the program has ended.
    ``container`` names what it runs in. The command ``at_end`` is run on the node when all that
    the program has started is gone.
    """

    node_rank: int
    host: str
    address: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    python_path: tuple[str, ...] = ()
    working_directory: str | None
    log_file: str | None = None
    log_file_whole: bool = False
    at_end: tuple[str, ...] = ()
    container: str | None = None
    log: Path


def run_dir(log: Path) -> Path:
    """Name the folder for a run's own files: the main log's name without ``.log``.

    Tools that read ``*/*.log`` so find main logs only.
    """
    return log.with_suffix("")


def node_log(log: Path, rank: int) -> Path:
    """Name the log of a node, in a run whose main log is ``log``."""
    log = log.absolute()
    return log if rank == 0 else run_dir(log) / f"node{rank}.log"


def node_folder(parent: str, run_id: str, rank: int, host: str) -> str:
    """Name the folder on a node that a run has for itself; the host tells whose it is."""
    name = f"pytest-dlperf-{run_id[:_RUN_DIGITS]}-{rank}-{host.replace(':', '.')}"
    return f"{parent.rstrip('/')}/{name}"


def first_port(run_id: str) -> int:
    """Say where the ports of a run begin, by the random number that it has."""
    return PORTS[int(run_id, 16) % len(PORTS)]


def example_nodes(
    hosts: Iterable[Host], case: Case, scratch: str, *, on_one_machine: bool = False
) -> tuple[Node, ...]:
    """Return the nodes of a plan that is only shown."""
    return tuple(
        Node(
            host=host,
            port=EXAMPLE_PORT + (rank if on_one_machine else 0),
            first_port=EXAMPLE_PORT,
            device_ids=tuple(range(case.topology.devices_per_node)),
            folder=node_folder(scratch, "RUN", rank, host.name),
        )
        for rank, host in enumerate(hosts)
    )


def plan_run(  # noqa: PLR0913 - a run has this many sides; all are given by name
    spec: Launch,
    *,
    case: Case,
    window: Window,
    settling_steps: int,
    system_directory: Path,
    run: int,
    nodes: Sequence[Node],
    variables: LaunchVariables,
    python: str,
    log: Path,
) -> tuple[NodeCommand, ...]:
    """Say what each node of a run executes, node 0 first; node 0 alone where it starts the rest.

    ``python`` is the interpreter where the user has set none.
    """
    log = log.absolute()
    own_files = run_dir(log)
    devices = case.topology.devices_per_node
    common: dict[str, object] = {
        **variables.values,
        "python": variables.python or python,
        **case_fields(case),
        "node_addresses": ",".join(node.address for node in nodes),
        "node_endpoints": ",".join(endpoint(node.address, node.port) for node in nodes),
        "master_address": nodes[0].address,
        "master_port": nodes[0].port,
        "master_endpoint": endpoint(nodes[0].address, nodes[0].port),
        "first_port": nodes[0].first_port,
        "host_slots": ",".join(endpoint(node.address, devices) for node in nodes),
        "warmup_steps": window.warmup_steps,
        "measured_steps": window.measured_steps,
        "steps": settling_steps + window.warmup_steps + window.measured_steps,
        "run": run,
        "run_directory": own_files,
        "system_directory": system_directory.absolute(),
    }
    # What node 0 starts elsewhere has its environment, and a folder under another name.
    steps = {} if spec.steps is None else {TRAINER: spec.steps.value}
    python_path = tuple(f"{node.folder}/steps" for node in nodes) if steps else ()
    started = nodes[:1] if spec.start_on is StartOn.HEAD else nodes
    return tuple(
        NodeCommand(
            node_rank=rank,
            host=node.host.name,
            address=node.address,
            arguments=(
                *_serving(spec, node, values),
                *_arguments(spec, case, values, variables.extra_args),
            ),
            environment={
                **steps,
                **_confinement(spec, node),
                **{name: fill(text, values) for name, text in spec.environment_of(case).items()},
                **variables.env,
            },
            python_path=python_path
            if spec.start_on is StartOn.HEAD
            else python_path[rank : rank + 1],
            working_directory=(
                variables.working_directory
                if spec.working_directory is None
                else fill(spec.working_directory, values)
            ),
            log_file=None if spec.log_file is None else fill(spec.log_file, values),
            log_file_whole=case.work is None,
            log=node_log(log, rank),
        )
        for rank, node in enumerate(started)
        for values in [_values(spec, case, common, rank, node)]
    )


def endpoint(address: str, port: int) -> str:
    """Write an address with a number behind it, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _values(
    spec: Launch, case: Case, common: Mapping[str, object], rank: int, node: Node
) -> dict[str, object]:
    values = {
        **common,
        "node_rank": rank,
        "node_address": node.address,
        "node_port": node.port,
        "device_ids": ",".join(node.accelerators.names(node.device_ids)),
        "scratch_directory": f"{node.folder}/scratch",
    }
    named = {name: fill(template, values) for name, template in spec.values_of(case).items()}
    return {**values, **named}


def _confinement(spec: Launch, node: Node) -> dict[str, str]:
    """Give the variables that confine a trainer to its devices; the system's and user's go before.

    A trainer on processors is left what there is.
    """
    if spec.devices is Devices.CPU:
        return {}
    kind = spec.devices.kind or node.accelerators.kind
    shown = node.accelerators
    return confined(kind, shown.ids, node.device_ids, mixed=shown.are_mixed)


def _serving(spec: Launch, node: Node, values: Mapping[str, object]) -> tuple[str, ...]:
    """Give what runs a server beside the command behind it, where there is one."""
    server = spec.server
    if server is None:
        return ()
    order = {
        "server": [fill(text, values) for text in server.command],
        "line": server.ready_line,
        "address": server.ready_address and fill(server.ready_address, values),
        "limit_s": server.ready_limit_s,
    }
    program = f"{node.folder}/steps/{_SERVING}"
    return (str(values["python"]), "-u", program, json.dumps(order))


def _arguments(
    spec: Launch, case: Case, values: Mapping[str, object], extra: tuple[str, ...]
) -> tuple[str, ...]:
    found: list[str] = []
    for template in spec.arguments(case):
        if template != EXTRA_ARGUMENTS:
            found.append(fill(template, values))
        else:
            found += extra
            extra = ()
    return (*found, *extra)


def step_files() -> dict[str, str]:
    """Give the files that Python has to find on a node, by name: they need nothing else of ours."""
    trainers = _PACKAGE / "trainers"
    files = {"sitecustomize.py": "sitecustomize.py", "dlperf_steps.py": "steps.py"}
    return {name: (trainers / own).read_text(encoding="ascii") for name, own in files.items()}


def serving_file() -> dict[str, str]:
    """Give the program that runs a server beside a command, by its name."""
    return {_SERVING: (_PACKAGE / "node" / _SERVING).read_text(encoding="ascii")}


def why_no_steps(steps: Steps, logs: Sequence[Path]) -> str:
    """Say how far it came where a run shows no step, by what was printed on the way."""
    begin = f"dlperf steps of {steps.value}".encode()
    found = [line for log in logs for line in _lines_with(log, begin, b"dlperf step rank=")]
    if any(begin not in line for line in found):
        return "launch.steps: they were printed, and are read with 'log: {format: dlperf}'"
    for line in found:
        said = line[line.index(begin) :].decode(errors="replace")
        if "cannot" in said:
            return f"launch.steps: {said}"
        return f"launch.steps: {said}, which did not train until its first step was done"
    return (
        f"launch.steps: no Python of the run has imported {steps.value}'s trainer with the folder "
        "that is in front of PYTHONPATH. Is it that trainer? Does 'python -I', '-E' or '-S', a "
        "container without the node's /tmp, or a program that sets PYTHONPATH keep it away? "
        "Otherwise add the callback to the script"
    )


def _lines_with(log: Path, *texts: bytes) -> list[bytes]:
    try:
        with log.open("rb") as file:
            lines = file.read(_LOOK_BYTES).splitlines()
            return [line for line in lines if any(text in line for text in texts)]
    except OSError:
        return []

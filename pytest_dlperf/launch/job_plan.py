"""Plans the job of a run: what its nodes execute, before it is known which nodes these are."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins

from pytest_dlperf.launch import channel
from pytest_dlperf.launch.plan import Node, first_port, node_folder, run_dir
from pytest_dlperf.launch.queue import Job
from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.launch.supervisor_client import prepare_details, start_details
from pytest_dlperf.node import member, supervisor
from pytest_dlperf.node.member import ADDRESS, HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.config.launch_variables import LaunchVariables
    from pytest_dlperf.launch.gang import RunOrder
    from pytest_dlperf.launch.preflight import Requirements
    from pytest_dlperf.launch.queue import Queue

MARGIN_S: Final = 600.0
"""The engine's own limit is so much longer than the run's: to come up, and to clean up."""
MEETING_LIMIT_S: Final = 300.0
"""The nodes of a job may come up so long after each other."""

_NO_LOCK: Final = "\0pytest-dlperf//"
"""No run holds locks of this name: a node of a job is nobody else's."""


class JobTerms(Struct, frozen=True, kw_only=True):
    """What a run asks of a queue, beside what any run asks for.

    ``purpose`` is for people. ``queue_limit_s`` counts from the submission to the start of the
    programs. ``hosts`` are the only ones, if there are any. ``check`` finds fault with what the
    look at a host, given by its name, has found.
    """

    purpose: str
    needed: Requirements
    variables: LaunchVariables
    hosts: tuple[str, ...]
    queue_limit_s: float
    check: Callable[[str, Mapping[str, Any]], str | None]


def job_of(queue: Queue, order: RunOrder, terms: JobTerms, *, run_id: str) -> Job:
    """Make the job of a run, without touching anything."""
    name = f"dlperf-{run_id[:20]}"
    folder = run_dir(order.places[0].log) / "job"
    reports = tuple(folder / f"node{rank}.reports" for rank in range(len(order.places)))
    told = {
        "name": name,
        "names": list(queue.node_names(name, len(order.places))),
        "folder": str(folder),
        "reports": list(map(str, reports)),
        "tells_in_lines": not queue.shares_disk,
        "wanted": {**to_builtins(terms.needed), "lock": _NO_LOCK},
    }
    return Job(
        name=name,
        purpose=terms.purpose,
        nodes=len(order.places),
        devices_per_node=len(order.places[0].device_ids),
        needs_devices=terms.needed.accelerators,
        program=_program({**told, **_orders(queue, order, run_id)}),
        hosts=terms.hosts,
        limit_s=order.time_limit_s + MEETING_LIMIT_S + MARGIN_S,
        queue_limit_s=terms.queue_limit_s,
        folder=folder,
        logs=tuple(place.log for place in order.places),
        reports=reports,
        options=terms.variables.taken_by(queue.takes),
        container=terms.variables.container,
    )


def nodes_that_met(
    order: RunOrder, run_id: str, hosts: Sequence[str], addresses: Sequence[str]
) -> tuple[Node, ...]:
    """Give the nodes of a job, once they have told what they are."""
    first = first_port(run_id)
    return tuple(
        Node(
            host=host,
            address=address,
            port=first + len(place.device_ids) + rank,
            first_port=first,
            device_ids=place.device_ids,
            folder=node_folder(order.scratch, run_id, rank, host),
        )
        for rank, (place, host, address) in enumerate(
            zip(order.places, hosts, addresses, strict=True)
        )
    )


def _orders(queue: Queue, order: RunOrder, run_id: str) -> dict[str, object]:
    """Say what nodes need to find each other, and what their supervisors are told then.

    ``run_id`` is what the nodes' folders and processes are told by.
    """
    commands = order.plan(
        # Text stands for what is not known of them yet.
        nodes_that_met(
            order,
            run_id,
            [HOST] * len(order.places),
            [ADDRESS.format(rank) for rank in range(len(order.places))],
        )
    )
    markers = [f"{run_id}.{rank}." for rank in range(len(order.places))]
    command, sent = sent_program("", source_of(supervisor), str(channel.HEARTBEAT_TIMEOUT_S))
    return {
        "nodes": len(order.places),
        "rank_variable": queue.rank_variable,
        "host_variable": queue.host_variable,
        "meeting_limit_s": MEETING_LIMIT_S,
        "logs": [str(place.log) for place in order.places],
        "supervisor": command[1:],
        "timeout_s": channel.HEARTBEAT_TIMEOUT_S,
        "sent": base64.b64encode(sent).decode("ascii"),
        "markers": markers,
        "prepare": [
            prepare_details(marker, node_folder(order.scratch, run_id, rank, HOST), order.files)
            for rank, marker in enumerate(markers)
        ],
        "start": [
            start_details(command, marker, queue.sets)
            for command, marker in zip(commands, markers, strict=True)
        ],
    }


def _program(told: dict[str, object]) -> bytes:
    """Write the program that each node executes: ``node.member``, with what it is told."""
    arguments = f"import sys\nsys.argv[1:] = [{json.dumps(told)!r}]\n".encode("ascii")
    return arguments + source_of(member)

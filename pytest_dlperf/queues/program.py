"""The program of a job: what each of its nodes runs, before anybody knows which nodes these are."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from pytest_dlperf.launch.channel import SENT_ALONG, supervisor_source
from pytest_dlperf.launch.plan import Node, node_folder
from pytest_dlperf.launch.preflight import PROBE_NEEDS
from pytest_dlperf.launch.remote_call import sent_program, source_of
from pytest_dlperf.launch.supervisor_client import prepare_details, start_details
from pytest_dlperf.node import member, probe
from pytest_dlperf.node.member import ADDRESS, FIRST_PORT, PORT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_dlperf.launch.preflight import Requirements
    from pytest_dlperf.launch.run import RunOrder
    from pytest_dlperf.queues.queue import Queue

_ROWS: Final = range(20_000, 29_000)
"""Rows of ports begin there: below what systems give out, and what torchrun takes by default."""
_ROWS_TRIED: Final = 4
_NOBODY: Final = "\0pytest-dlperf//"
"""No run holds locks of this name: a node of a job is nobody else's."""


def nodes_to_be(order: RunOrder, name: str) -> tuple[Node, ...]:
    """Give the nodes of a job with text for what is not known of them yet."""
    return tuple(
        Node(
            host=place.host.name,
            address=ADDRESS.format(rank),
            port=PORT,
            first_port=FIRST_PORT,
            device_ids=place.device_ids,
            folder=node_folder(order.scratch, name, rank),
        )
        for rank, place in enumerate(order.places)
    )


def nodes_that_met(
    order: RunOrder, name: str, hosts: Sequence[str], addresses: Sequence[str], first: int
) -> tuple[Node, ...]:
    """Give the same nodes once they have told what they are."""
    return tuple(
        Node(
            host=host,
            address=address,
            port=first + order.row,
            first_port=first,
            device_ids=place.device_ids,
            folder=node_folder(order.scratch, name, rank),
        )
        for rank, (place, host, address) in enumerate(
            zip(order.places, hosts, addresses, strict=True)
        )
    )


def job_program(  # noqa: PLR0913 - all that nodes are told, by name
    queue: Queue,
    order: RunOrder,
    *,
    run_id: str,
    name: str,
    folder: Path,
    reports: Sequence[Path],
    needed: Requirements,
    limit_s: float,
) -> bytes:
    """Write the program that each node of a run executes.

    ``run_id`` is what the nodes' folders and processes are told by, ``name`` the job's. In
    ``folder`` nodes tell each other about themselves, for ``limit_s`` seconds at most.
    """
    commands = order.plan(nodes_to_be(order, run_id))
    markers = [f"{run_id}.{rank}." for rank in range(len(order.places))]
    supervisor, sent = sent_program("", supervisor_source(), "0")
    told = {
        "name": name,
        "nodes": len(order.places),
        "rank_variable": queue.rank_variable,
        "host_variable": queue.host_variable,
        "names": list(queue.node_names(name, len(order.places))),
        "folder": str(folder),
        "rows": random.sample(_ROWS, _ROWS_TRIED),
        "row": order.row,
        "meeting_limit_s": limit_s,
        "wanted": {**asdict(needed), "lock": _NOBODY},
        "tells_in_lines": not queue.shares_disk,
        "reports": list(map(str, reports)),
        "logs": [str(place.log) for place in order.places],
        "supervisor": supervisor[1:],
        "sent": base64.b64encode(sent).decode("ascii"),
        "markers": list(markers),
        "prepare": [
            prepare_details(marker, node_folder(order.scratch, run_id, rank), order.files)
            for rank, marker in enumerate(markers)
        ],
        "start": [
            start_details(command, marker, queue.sets)
            for command, marker in zip(commands, markers, strict=True)
        ],
    }
    arguments = f"import sys\nsys.argv[1:] = [{json.dumps(told)!r}]\n".encode("ascii")
    return arguments + source_of(member, *dict.fromkeys((*SENT_ALONG, *PROBE_NEEDS)), probe)

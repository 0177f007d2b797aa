"""A queue in the place of a session's hosts: every run of a case goes there as a job of its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dlperf.launch.fleet import Fleet, leases_anywhere, places_anywhere
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.job_plan import JobTerms, job_of
from pytest_dlperf.launch.plan import example_nodes
from pytest_dlperf.launch.preflight import fingerprint_of, host_report
from pytest_dlperf.launch.queued_gang import QueuedGang
from pytest_dlperf.launch.run import run_gang
from pytest_dlperf.model.errors import CannotMeasureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.config.launch_variables import LaunchVariables
    from pytest_dlperf.launch.gang import RunOrder
    from pytest_dlperf.launch.launchers import Engine
    from pytest_dlperf.launch.leases import Lease
    from pytest_dlperf.launch.plan import Node, Place
    from pytest_dlperf.launch.preflight import HostReport, Requirements
    from pytest_dlperf.launch.queue import Queue
    from pytest_dlperf.launch.record import LaunchOutcome
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.commits import Checkout
    from pytest_dlperf.model.measurement import Fingerprint

EXAMPLE_RUN: Final = "0123456789abcdef0123456789abcdef"
"""Stands in a job that is only shown for the number that a run would be given."""


@final
@dataclass(slots=True, eq=False)
class QueueFleet(Fleet):
    """The nodes that a queue will choose.

    ``devices_per_node`` is what a node of the cluster has, if declared. A run waits for
    ``queue_limit_s`` seconds at most.
    """

    queue: Queue
    devices_per_node: int | None
    queue_limit_s: float
    _found: dict[tuple[str, str], dict[str, tuple[Host, HostReport]]] = field(
        default_factory=dict, init=False
    )
    """What the jobs of a case have found on their hosts, by the name of each."""

    @property
    def description(self) -> str:
        """The queue."""
        return f"by {self.queue.name}, each run as a job of its own"

    @property
    def engine(self) -> Engine:
        """The queue."""
        return self.queue

    def check_size(self, case: Case, *, accelerators: bool) -> None:
        """Go by what a node of the cluster has."""
        devices, there = case.topology.devices_per_node, self.devices_per_node
        if accelerators and there is not None and devices > there:
            raise CannotMeasureError(
                f"{case.id} needs nodes of {devices} devices; a node of this cluster has {there} "
                "(devices_per_node in cluster.yaml)"
            )

    @contextmanager
    def leased(
        self, case: Case, *needed: Requirements, only: Sequence[str] | None = None
    ) -> Iterator[tuple[Lease, ...]]:
        """Give a place in the queue per node; ``only`` names the hosts that it may get."""
        del needed
        yield leases_anywhere(case, only or ())

    def places(self, leases: Sequence[Lease], needed: Requirements, log: Path) -> tuple[Place, ...]:
        """Place the nodes of a run."""
        del needed
        return places_anywhere(leases, log)

    def run(
        self, order: RunOrder, case: Case, needed: Requirements, variables: LaunchVariables
    ) -> LaunchOutcome:
        """Run a case's nodes as a job.

        Raises:
            CannotMeasureError: The queue cannot run a system of this kind.
        """
        if order.head_only:
            raise CannotMeasureError(
                f"{case.id} starts its other nodes from the first one (start_on: head), and in a "
                f"job of {self.queue.name} each node starts its own program; launch it over ssh, "
                "or inside an allocation of Slurm"
            )
        terms = self._terms(order, case, needed, variables)
        return run_gang(lambda signals: QueuedGang(self.queue, order, terms, signals), order)

    def dry_run_text(
        self, order: RunOrder, case: Case, needed: Requirements, variables: LaunchVariables
    ) -> str:
        """Show the job of a run, as its queue would get it."""
        terms = self._terms(order, case, needed, variables)
        return self.queue.dry_run_text(job_of(self.queue, order, terms, run_id=EXAMPLE_RUN))

    def _terms(
        self, order: RunOrder, case: Case, needed: Requirements, variables: LaunchVariables
    ) -> JobTerms:
        found = self._found.setdefault((case.id, needed.key), {})
        devices = case.topology.devices_per_node

        def check(name: str, look: Mapping[str, Any]) -> str | None:
            if name not in found:
                host = Host(name=name, address=name, devices=devices)
                found[name] = host, host_report(host, needed, look)
            return found[name][1].fault_of(range(devices))

        return JobTerms(
            purpose=case.id,
            needed=needed,
            variables=variables,
            hosts=tuple(place.host.name for place in order.places if place.host.name),
            queue_limit_s=self.queue_limit_s,
            check=check,
        )

    def checkouts(
        self, case: Case, needed: Requirements, leases: Sequence[Lease]
    ) -> Mapping[str, Checkout]:
        """Go by what the first node of its jobs has found."""
        del leases
        found = self._found.get((case.id, needed.key), {})
        return next((report.checkouts for _, report in found.values()), {})

    def fingerprint(self, case: Case, needed: Requirements, leases: Sequence[Lease]) -> Fingerprint:
        """Describe what a case was measured on, by what its jobs have found where they ran."""
        del leases
        found = self._found.get((case.id, needed.key), {})
        places = range(case.topology.devices_per_node)
        looked_at = [(host, report, places) for host, report in found.values()]
        return fingerprint_of(case.topology, looked_at, needed, on_one_machine=False)

    def planned_nodes(self, case: Case, *, scratch: str) -> tuple[Node, ...]:
        """Return nodes as the queue might choose them."""
        ranks = range(case.topology.nodes)
        places = [(f"node {rank} of the job", f"ADDRESS{rank}") for rank in ranks]
        return example_nodes(places, case, scratch)

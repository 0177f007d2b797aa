"""The hosts of a session: declared, or given by a queue for each case; checked and leased."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.files.checkouts import described
from pytest_dlperf.files.locks import shared_once
from pytest_dlperf.launch.allocations import Allocation, Allocator, HostRequest
from pytest_dlperf.launch.hosts import Host, Node, describe_hosts
from pytest_dlperf.launch.launchers import ADDRESS, Engine, Launcher, lock_scope
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.launch.plan import example_nodes, node_log
from pytest_dlperf.launch.preflight import HostReport, Requirements, fingerprint_of, look_at_hosts
from pytest_dlperf.launch.record import LaunchOutcome, RunOrder
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.errors import (
    BrokenError,
    CannotMeasureError,
    UnfitHostsError,
)
from pytest_dlperf.model.measurement import Fingerprint

THIS_MACHINE: Final = Host(name="localhost", address=ADDRESS, devices=None)


class HostFault(Struct, frozen=True):
    """Why a host cannot be used; reported once per session."""

    host: str
    fault: str


@final
@dataclass(slots=True, eq=False)
class Fleet:
    """The hosts of a session: those ``declared``, or this machine alone.

    A queue, the ``allocator``, gives other hosts for each case, and their launcher; each of them
    has ``devices_per_node``, if that is known. The processes of a session share in
    ``shared_folder`` what they find out about hosts. Unless ``exclusive``, several runs may share a
    host, each with devices of its own. ``lock`` begins the names of the locks that a run holds on
    its hosts. A run waits ``wait_limit_s`` seconds for hosts at most.
    """

    launcher: Launcher
    declared: Sequence[Host]
    _: KW_ONLY
    allocator: Allocator | None = None
    devices_per_node: int | None = None
    pool: HostPool
    exclusive: bool
    lock: str
    wait_limit_s: float
    shared_folder: Path | None
    say: Callable[[str], None]
    _resolved: tuple[Host, ...] | None = field(default=None, init=False)
    _reports: dict[str, dict[str, HostReport]] = field(default_factory=dict, init=False)
    _faults: set[HostFault] = field(default_factory=set, init=False)
    _held: tuple[HostRequest, Allocation] | None = field(default=None, init=False)
    """What was asked of the queue, and what it has given."""
    _held_until: float = field(default=0.0, init=False)

    @property
    def is_this_machine(self) -> bool:
        """Whether no hosts were named, so that all nodes are this machine."""
        return not self.declared and self.allocator is None

    @property
    def description(self) -> str:
        """What launches, and where, for people."""
        if self.allocator is not None:
            return f"on hosts that {self.allocator.name} gives for each case"
        if self.is_this_machine:
            return "on this machine"
        note = ", all of them this machine" if self.launcher.on_this_machine else ""
        return f"by {self.launcher.name} on {describe_hosts(self.declared)}{note}"

    @property
    def faults(self) -> list[HostFault]:
        """The faults of hosts that cases could not use so far."""
        return sorted(self._faults, key=lambda fault: (fault.host, fault.fault))

    @property
    def engine(self) -> Engine:
        """What starts the runs."""
        return self.launcher if self.allocator is None else self.allocator

    def check_size(self, case: Case, *, accelerators: bool) -> None:
        """Raise ``CannotMeasureError`` unless enough is declared for a case; ask no host."""
        if self.allocator is not None:
            devices, there = case.topology.devices_per_node, self.devices_per_node
            if accelerators and there is not None and devices > there:
                raise CannotMeasureError(
                    f"{case.id} needs nodes of {devices} devices; a node of this cluster has "
                    f"{there} (devices_per_node in cluster.yaml)"
                )
        elif self.is_this_machine:
            if accelerators and case.topology.nodes > 1:
                raise self._not_enough(case, [THIS_MACHINE], accelerators=accelerators)
        elif len(_large_enough(self.declared, case)) < case.topology.nodes:
            raise self._not_enough(case, self.declared, accelerators=accelerators)

    # ------------------------------------------------------------------ hosts for a case

    @contextmanager
    def leased(
        self,
        case: Case,
        *needed: Requirements,
        limit_s: float,
        only: Sequence[str] | None = None,
    ) -> Iterator[tuple[Node, ...]]:
        """Wait for hosts that are fit for all that is ``needed``, and hold one for each node.

        With ``only`` they are the hosts of these names, in this order. A queue is asked for them
        for ``limit_s`` seconds.

        Raises:
            CannotMeasureError: There are too few, or they have too few devices.
            BrokenError: Too few of them are fit, or the pool, the queue or the launcher cannot be
                used.
        """
        nodes, on_one_machine = case.topology.nodes, self.is_this_machine
        looked_at: Sequence[Requirements] = needed
        with ExitStack() as stack:
            if self.allocator is not None:
                self._reports.clear()
                stack.callback(self._give_back)
                requests = [self._request(case, each, limit_s, only or ()) for each in needed]
                self._acquire(self.allocator, requests[0])
                # Another image is looked at in its own turn.
                looked_at = [
                    each
                    for each, request in zip(needed, requests, strict=True)
                    if self._is_held_for(request)
                ]
            nodes_leased = stack.enter_context(
                self.pool.leased(
                    self._fit(case, looked_at, only),
                    nodes=1 if on_one_machine else nodes,
                    devices=case.topology.devices_per_node,
                    exclusive=self.exclusive,
                    purpose=case.id,
                    limit_s=self.wait_limit_s,
                    on_wait=self.say,
                )
            )
            yield nodes_leased * nodes if on_one_machine else nodes_leased

    def nodes(
        self,
        leased: Sequence[Node],
        case: Case,
        needed: Requirements,
        *,
        time_limit_s: float,
        log: Path,
    ) -> tuple[Node, ...]:
        """Get the nodes ready for one run of so many seconds; each host's first locks its devices.

        A queue is asked for the same hosts again if it gave them for a shorter time or for another
        image, or has taken them away.
        """
        hosts = [node.host for node in leased]
        if self.allocator is not None:
            limit_s = self._held[0].limit_s if self._held else time_limit_s
            request = self._request(case, needed, limit_s, [host.name for host in hosts])
            is_long_enough = time.monotonic() + time_limit_s <= self._held_until
            if not (is_long_enough and self._is_held_for(request) and self._loss() is None):
                names = request.hosts
                self._give_back()
                self._acquire(self.allocator, request)
                self._reports.pop(needed.key, None)
                self._fit(case, [needed], names)
            hosts = [*self._hosts()]
        reports = self._looked_at(needed)
        addresses = [host.address for host in hosts]
        nodes = []
        for rank, (node, host) in enumerate(zip(leased, hosts, strict=True)):
            locked = node.device_ids
            if self.exclusive:
                # All of them, so that no run that shares comes in between.
                locked = tuple(range(max(host.devices or 0, len(locked))))
            nodes.append(
                Node(
                    host=host,
                    device_ids=node.device_ids,
                    locked_devices=locked if host.address not in addresses[:rank] else (),
                    lock_scope=lock_scope(self.lock, host, self.launcher),
                    log=node_log(log, rank),
                    accelerators=reports[host.name].accelerators,
                )
            )
        return tuple(nodes)

    def run(self, order: RunOrder, variables: LaunchVariables) -> LaunchOutcome:
        """Run the nodes of a case."""
        order = replace(order, wait_limit_s=self.wait_limit_s, loss=self._loss)
        return run_on_hosts(self.launcher.taking(variables.engine), order)

    def checkouts(self, needed: Requirements, nodes: Sequence[Node]) -> Mapping[str, Checkout]:
        """Describe the checkouts that a case ran from, by the look at its first host."""
        found = self._looked_at(needed)[nodes[0].host.name].checkouts
        return {name: described(one) for name, one in found.items()}

    def fingerprint(self, case: Case, needed: Requirements, nodes: Sequence[Node]) -> Fingerprint:
        """Describe what a case was measured on, by the look at the hosts of these nodes."""
        looked_at = self._looked_at(needed)
        each = {node.host.name: node for node in nodes}.values()
        return fingerprint_of(
            case.topology,
            [(node.host, looked_at[node.host.name], node.device_ids) for node in each],
            needed,
            on_one_machine=self.launcher.on_this_machine,
        )

    def planned_nodes(self, case: Case, *, scratch: str) -> tuple[Node, ...]:
        """Return the nodes that a case would go to if all hosts were fit and free.

        ``scratch`` is the folder on each host in which runs make their own.
        """
        wanted = case.topology.nodes
        if self.allocator is not None:
            name = self.allocator.name
            hosts = [
                Host(name=f"host {rank} of {name}", address=f"ADDRESS{rank}")
                for rank in range(wanted)
            ]
        else:
            hosts = _large_enough(self._hosts(), case) * (wanted if self.is_this_machine else 1)
        return example_nodes(hosts[:wanted], case, scratch, on_one_machine=self.is_this_machine)

    # ------------------------------------------------------------------ what a queue gives

    def describe_request(self, case: Case, needed: Requirements, limit_s: float) -> str:
        """Show what a queue would be asked for; without one, nothing."""
        if self.allocator is None:
            return ""
        return self.allocator.describe(self._request(case, needed, limit_s, ()))

    def _request(
        self, case: Case, needed: Requirements, limit_s: float, only: Sequence[str]
    ) -> HostRequest:
        queue = self.engine
        takes = {*queue.takes} - {*(self.allocator.launcher.takes if self.allocator else ())}
        return HostRequest(
            purpose=case.id,
            nodes=case.topology.nodes,
            devices_per_node=case.topology.devices_per_node,
            needs_devices=needed.accelerators,
            limit_s=limit_s,
            wait_limit_s=self.wait_limit_s,
            hosts=tuple(dict.fromkeys(only)),
            options={name: words for name, words in needed.engine.items() if name in takes},
            image=needed.image if queue.has_own_files else None,
        )

    def _is_held_for(self, request: HostRequest) -> bool:
        """Whether the hosts were asked for by these options, and have this image."""
        held = self._held[0] if self._held else None
        return held is not None and (held.options, held.image) == (request.options, request.image)

    def _acquire(self, allocator: Allocator, request: HostRequest) -> None:
        """Have hosts of the queue from now on, in the order of the names that were asked for."""
        given = allocator.acquire(request, self.say)
        self._held, self._held_until = (request, given), time.monotonic() + given.limit_s
        names = request.hosts
        self.declared = sorted(given.hosts, key=lambda host: names.index(host.name) if names else 0)
        self.launcher, self._resolved = given.launcher, None

    def _give_back(self) -> None:
        if self.allocator is not None and self._held is not None:
            (_, given), self._held = self._held, None
            try:
                self.allocator.release(given)
            except BrokenError as error:
                self.say(f"{self.allocator.name} does not take hosts back: {error}")

    def _loss(self) -> str | None:
        """Say why the queue has taken the hosts away, if it has."""
        if self.allocator is None or self._held is None:
            return None
        return self.allocator.loss(self._held[1])

    # ------------------------------------------------------------------ which are fit

    def _fit(
        self, case: Case, needs: Sequence[Requirements], only: Sequence[str] | None
    ) -> list[Host]:
        """Look at the hosts, and keep those that are large enough and fit for all needs."""
        looks = [self._looked_at(needed) for needed in needs]
        counted = any(needed.accelerators for needed in needs)
        hosts = self._hosts()
        if only is not None and self.allocator is None:
            hosts = _named(hosts, only, case)
        known = [
            replace(host, devices=len(looks[0][host.name].accelerators.ids))
            if host.devices is None and counted
            else host
            for host in hosts
        ]
        # Where hosts are shared, a run may get any of the devices.
        devices = case.topology.devices_per_node if self.exclusive else None
        faults = {
            host.name: [fault for look in looks if (fault := look[host.name].fault_of(devices))]
            for host in known
        }
        self._faults |= {HostFault(name, fault) for name in faults for fault in faults[name]}
        wanted = 1 if self.is_this_machine else case.topology.nodes
        fit = [host for host in _large_enough(known, case) if not faults[host.name]]
        if len(fit) >= wanted:
            return fit
        broken = [host for host in known if faults[host.name]]
        if len(fit) + len(broken) < wanted or not broken:
            raise self._not_enough(case, known, accelerators=counted)
        by_fault: dict[str, list[str]] = {}
        for host in broken:
            fault = "; ".join(dict.fromkeys(faults[host.name]))
            by_fault.setdefault(fault, []).append(host.name)
        listed = "\n".join(f"  {', '.join(names)}: {fault}" for fault, names in by_fault.items())
        # What an answering host lacks may be asked for in this session alone.
        looked_at = [look[host.name] for look in looks for host in broken]
        is_theirs = all(report.fault is None or report.is_silent for report in looked_at)
        raise (UnfitHostsError if is_theirs else BrokenError)(
            f"{case.id} needs {wanted} fit host{'s' * (wanted > 1)}, and there "
            f"{'is' if len(fit) == 1 else 'are'} {len(fit)}. Not fit:\n{listed}"
        )

    def _hosts(self) -> tuple[Host, ...]:
        if self._resolved is None:
            self._resolved = self.launcher.resolve(self.declared or (THIS_MACHINE,))
        return self._resolved

    def _looked_at(self, needed: Requirements) -> dict[str, HostReport]:
        """Report on all hosts; one process of the session looks, the others read."""
        if needed.key not in self._reports:
            self._reports[needed.key] = shared_once(
                # No other process has these hosts.
                None if self.allocator else self.shared_folder,
                f"hosts-{needed.key}",
                dict[str, HostReport],
                lambda: look_at_hosts(
                    self.launcher, self._hosts(), needed, lock=self.lock, say=self.say
                ),
            )
        return self._reports[needed.key]

    def _not_enough(
        self, case: Case, hosts: Sequence[Host], *, accelerators: bool
    ) -> CannotMeasureError:
        nodes, devices = case.topology.nodes, case.topology.devices_per_node
        needs = f"{nodes} node{'s' * (nodes > 1)} of {devices} device{'s' * (devices > 1)}"
        if self.is_this_machine:
            shown = hosts[0].devices
            there = "this machine alone" if shown is None else f"this machine, which shows {shown}"
        else:
            there = describe_hosts(hosts)
        hint = "; a trainer that needs none says 'devices: cpu' under 'launch'"
        return CannotMeasureError(
            f"{case.id} needs {needs}; there is {there}. Name hosts with --dlperf-hosts "
            f"or DLPERF_HOSTS, as in node[01-04]:8{hint if accelerators else ''}"
        )


def _named(hosts: Sequence[Host], names: Sequence[str], case: Case) -> tuple[Host, ...]:
    by_name = {host.name: host for host in hosts}
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in by_name]
    if not wanted:
        raise CannotMeasureError(f"{case.id} is to run on the same hosts again, and none are known")
    if unknown:
        raise CannotMeasureError(
            f"{case.id} is to run on {', '.join(wanted)} again, and this session has no host "
            f"{', '.join(unknown)}; it has {', '.join(by_name)}"
        )
    return tuple(by_name[name] for name in wanted)


def _large_enough(hosts: Sequence[Host], case: Case) -> list[Host]:
    """Keep hosts with as many devices as a case needs on each node, as far as is known."""
    needed = case.topology.devices_per_node
    return [host for host in hosts if host.devices is None or host.devices >= needed]

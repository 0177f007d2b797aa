"""The hosts of a session: declared, or given by a queue for each case; checked and leased."""

from __future__ import annotations

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
from pytest_dlperf.launch.allocations import Allocation
from pytest_dlperf.launch.gang import RunOrder
from pytest_dlperf.launch.held_hosts import HeldHosts
from pytest_dlperf.launch.hosts import Host, describe_hosts
from pytest_dlperf.launch.launchers import ADDRESS, Engine, Launcher, lock_scope
from pytest_dlperf.launch.leases import HostPool, Lease
from pytest_dlperf.launch.plan import Node, example_nodes, node_log
from pytest_dlperf.launch.preflight import HostReport, Requirements, fingerprint_of, look_at_hosts
from pytest_dlperf.launch.record import LaunchOutcome
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.errors import (
    BrokenError,
    CannotMeasureError,
    DlperfError,
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

    A queue (``held``) gives other hosts for each case, and their launcher. The processes of a
    session share in ``shared_folder`` what they find out about hosts. Unless ``exclusive``, several
    runs may share a host, each with devices of its own. ``lock`` begins the names of the locks that
    a run holds on its hosts. A run waits ``wait_limit_s`` seconds for hosts at most.
    """

    launcher: Launcher
    declared: Sequence[Host]
    _: KW_ONLY
    held: HeldHosts | None = None
    pool: HostPool
    exclusive: bool
    lock: str
    wait_limit_s: float
    shared_folder: Path | None
    say: Callable[[str], None]
    _resolved: tuple[Host, ...] | None = field(default=None, init=False)
    _reports: dict[str, dict[str, HostReport]] = field(default_factory=dict, init=False)
    _faults: set[HostFault] = field(default_factory=set, init=False)

    @property
    def is_this_machine(self) -> bool:
        """Whether no hosts were named, so that all nodes are this machine."""
        return not self.declared and self.held is None

    @property
    def description(self) -> str:
        """What launches, and where, for people."""
        if self.held is not None:
            return f"on hosts that {self.held.allocator.name} gives for each case"
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
        return self.launcher if self.held is None else self.held.allocator

    def check_size(self, case: Case, *, accelerators: bool) -> None:
        """Raise ``CannotMeasureError`` unless enough is declared for a case; ask no host."""
        if self.held is not None:
            self.held.check_size(case, accelerators=accelerators)
            return
        if self.is_this_machine:
            if accelerators and case.topology.nodes > 1:
                raise self._not_enough(case, [THIS_MACHINE], accelerators=accelerators)
            return
        if len(_large_enough(self.declared, case)) < case.topology.nodes:
            raise self._not_enough(case, self.declared, accelerators=accelerators)

    @contextmanager
    def leased(
        self,
        case: Case,
        *needed: Requirements,
        limit_s: float,
        only: Sequence[str] | None = None,
    ) -> Iterator[tuple[Lease, ...]]:
        """Wait for hosts that are fit for all that is ``needed``, and hold a lease for each node.

        With ``only`` they are the hosts of these names, in this order. A queue is asked for them
        for ``limit_s`` seconds.

        Raises:
            CannotMeasureError: There are too few, or they have too few devices.
            BrokenError: Too few of them are fit, or the pool, the queue or the launcher cannot be
                used.
        """
        topology, held, on_one_machine = case.topology, self.held, self.is_this_machine
        looked_at: Sequence[Requirements] = needed
        with ExitStack() as stack:
            if held is not None:
                self._reports.clear()
                self._use(held.acquire(case, needed[0], limit_s, only or ()), only or ())
                stack.callback(held.release)
                # Another image is looked at in its own turn.
                looked_at = [each for each in needed if held.are_for(each)]
            leases = stack.enter_context(
                self.pool.leased(
                    self._candidates(case, looked_at, only),
                    nodes=1 if on_one_machine else topology.nodes,
                    devices=topology.devices_per_node,
                    exclusive=self.exclusive,
                    purpose=case.id,
                    limit_s=self.wait_limit_s,
                    on_wait=self.say,
                )
            )
            yield leases * topology.nodes if on_one_machine else leases

    def ready(
        self, leases: Sequence[Lease], case: Case, needed: Requirements, time_limit_s: float
    ) -> Sequence[Lease]:
        """Return the leases for one more run of so many seconds.

        A queue is asked for the same hosts again if it gave them for a shorter time or for another
        image, or has taken them away.
        """
        if self.held is None:
            return leases
        if not self.held.suffice(needed, time_limit_s):
            names = [lease.host.name for lease in leases]
            self._use(self.held.acquire_again(case, needed, names), names)
            self._reports.pop(needed.key, None)
            self._candidates(case, [needed], names)
        hosts = self._hosts()
        return [replace(lease, host=host) for lease, host in zip(leases, hosts, strict=True)]

    def _use(self, given: Allocation, only: Sequence[str]) -> None:
        """Go on with the hosts that a queue has given, in the order of the names."""
        hosts = given.hosts
        if only:
            hosts = tuple(sorted(hosts, key=lambda host: only.index(host.name)))
        self.launcher, self.declared, self._resolved = given.launcher, hosts, None

    def dry_run_text(self, case: Case, needed: Requirements, limit_s: float) -> str:
        """Show what a queue would be asked for."""
        return "" if self.held is None else self.held.describe(case, needed, limit_s)

    # ------------------------------------------------------------------ what a case runs on

    def checkouts(self, needed: Requirements, leases: Sequence[Lease]) -> Mapping[str, Checkout]:
        """Describe the checkouts that a case ran from, by the look at its first host."""
        found = self._looked_at(needed)[leases[0].host.name].checkouts
        return {name: described(one) for name, one in found.items()}

    def fingerprint(self, case: Case, needed: Requirements, leases: Sequence[Lease]) -> Fingerprint:
        """Describe what a case was measured on, by the look at the hosts of these leases."""
        looked_at = self._looked_at(needed)
        return fingerprint_of(
            case.topology,
            [
                (lease.host, looked_at[lease.host.name], lease.device_ids)
                for lease in dict.fromkeys(leases)
            ],
            needed,
            on_one_machine=self.launcher.on_this_machine,
        )

    def run(self, order: RunOrder, variables: LaunchVariables) -> LaunchOutcome:
        """Run the nodes of a case."""
        order = replace(order, wait_limit_s=self.wait_limit_s)
        if self.held is not None:
            order = replace(order, loss=self.held.loss)
        return run_on_hosts(self.launcher.taking(variables.engine), order)

    def nodes(self, leases: Sequence[Lease], needed: Requirements, log: Path) -> tuple[Node, ...]:
        """Make the nodes of these leases; the first one of each host locks its devices."""
        reports = self._looked_at(needed)
        addresses = [lease.host.address for lease in leases]
        locked = [
            lease.device_ids
            if not self.exclusive
            # All of them, so that no run that shares comes in between.
            else tuple(range(max(lease.host.devices or 0, len(lease.device_ids))))
            for lease in leases
        ]
        return tuple(
            Node(
                host=lease.host,
                device_ids=lease.device_ids,
                locked_devices=locked[rank] if lease.host.address not in addresses[:rank] else (),
                lock_scope=lock_scope(self.lock, lease.host, self.launcher),
                log=node_log(log, rank),
                accelerators=reports[lease.host.name].accelerators,
            )
            for rank, lease in enumerate(leases)
        )

    def planned_nodes(self, case: Case, *, scratch: str) -> tuple[Node, ...]:
        """Return the nodes that a case would go to if all hosts were fit and free.

        ``scratch`` is the folder on each host in which runs make their own.
        """
        wanted = case.topology.nodes
        if self.held is not None:
            name = self.held.allocator.name
            given = [
                Host(name=f"host {rank} of {name}", address=f"ADDRESS{rank}")
                for rank in range(wanted)
            ]
            return example_nodes(given, case, scratch)
        hosts = _large_enough(self._hosts(), case)
        if self.is_this_machine:
            hosts *= wanted
        return example_nodes(hosts[:wanted], case, scratch, on_one_machine=self.is_this_machine)

    # ------------------------------------------------------------------ which are fit

    def _candidates(
        self, case: Case, needs: Sequence[Requirements], only: Sequence[str] | None
    ) -> list[Host]:
        hosts = self._hosts()
        looks = [self._looked_at(needed) for needed in needs]
        counted = any(needed.accelerators for needed in needs)
        known = [
            replace(host, devices=looks[0][host.name].devices)
            if host.devices is None and counted
            else host
            for host in (hosts if only is None or self.held else _named(hosts, only, case))
        ]
        # Where hosts are shared, a run may get any of the devices.
        devices = case.topology.devices_per_node if self.exclusive else None
        faults = {
            host.name: [f for look in looks if (f := look[host.name].fault_of(devices)) is not None]
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
        # What an answering host lacks may be asked for since tonight.
        looked_at = [look[host.name] for look in looks for host in broken]
        is_theirs = all(report.fault is None or report.is_silent for report in looked_at)
        raise (UnfitHostsError if is_theirs else BrokenError)(
            f"{case.id} needs {wanted} fit host{'s' * (wanted > 1)}, and there "
            f"{'is' if len(fit) == 1 else 'are'} {len(fit)}. Not fit:\n{listed}"
        )

    def _hosts(self) -> tuple[Host, ...]:
        if self._resolved is None:
            try:
                resolved = self.launcher.resolve(self.declared or (THIS_MACHINE,))
            except DlperfError:
                raise
            except Exception as error:  # a plugin's launcher may raise anything
                fault = f"{type(error).__name__}: {error}"
                raise BrokenError(
                    f"launcher {self.launcher.name} cannot resolve hosts: {fault}"
                ) from error
            first: dict[str, str] = {}
            for host in resolved:
                other = first.setdefault(host.address.lower(), host.name)
                if other != host.name:  # two gangs would be given the same machine
                    raise BrokenError(
                        f"the hosts {other} and {host.name} have the same address, {host.address}; "
                        "name each host once, or give each its own in a host file (address=…)"
                    )
            self._resolved = resolved
        return self._resolved

    def _looked_at(self, needed: Requirements) -> dict[str, HostReport]:
        """Report on all hosts; one process of the session looks, the others read."""
        if needed.key not in self._reports:
            self._reports[needed.key] = shared_once(
                # No other process has these hosts.
                None if self.held else self.shared_folder,
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


def _named(hosts: Sequence[Host], names: Sequence[str], case: Case) -> list[Host]:
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
    return [by_name[name] for name in wanted]


def _large_enough(hosts: Sequence[Host], case: Case) -> list[Host]:
    """Keep hosts with as many devices as a case needs on each node, as far as is known."""
    needed = case.topology.devices_per_node
    return [host for host in hosts if host.devices is None or host.devices >= needed]

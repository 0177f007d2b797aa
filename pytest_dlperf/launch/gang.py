"""The supervisors of all nodes of a run: reached and locked at once, and ended for certain."""

from __future__ import annotations

import contextlib
import json
import math
import random
import selectors
import threading
import time
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.launch import supervisor_client
from pytest_dlperf.launch.head_node import keeper_file, launch_agents
from pytest_dlperf.launch.hosts import Host, describe_hosts
from pytest_dlperf.launch.launchers import played_address
from pytest_dlperf.launch.leases import waited_in_vain
from pytest_dlperf.launch.plan import PORT_ROWS, node_folder
from pytest_dlperf.launch.remote_call import allow_connections, source_of, start_remote
from pytest_dlperf.launch.supervisor_client import NodeState, SupervisorClient
from pytest_dlperf.node import guardian, keeper, processes, remains, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.launch.remote_call import RemoteCall
    from pytest_dlperf.launch.supervisor_client import Place

CONNECT_LIMIT_S: Final = 30.0
"""Limit until a supervisor answers, unless the launcher queues."""
QUEUE_LIMIT_S: Final = 30.0
"""Some nodes of a run are kept for so long while others are still queued for."""
QUEUE_SILENCE_S: Final = 3.0
"""A run is queued for so long before the user hears of it."""
SWEEP_LIMIT_S: Final = remains.REPORT_LIMIT_S + 5.0
"""Limit of a second connection that ends what a killed supervisor has left."""
LOST_SWEEP_LIMIT_S: Final = 0.6
"""The same where the host was lost: it is most likely still out of reach."""
POLL_S: Final = 0.05
CHECK_LIFE_S: Final = 0.25


class InterruptedRunError(Exception):
    """A signal came before the run began."""


def once_all(
    clients: Sequence[SupervisorClient], so: Callable[[SupervisorClient], bool]
) -> Callable[[], bool]:
    """Give what says whether something that does not end holds for all; it looks at each once."""
    others = list(clients)

    def all_are() -> bool:
        while others and so(others[-1]):
            others.pop()
        return not others

    return all_are


@final
class Gang:
    """The supervisors of one run, from the first connection until nothing of it is left."""

    def __init__(  # noqa: PLR0913 - all that nodes are reached by, by name
        self,
        launcher: Launcher,
        places: Sequence[Place],
        *,
        run_id: str,
        scratch: str,
        head_only: bool,
        files: Mapping[str, str],
        row: int,
        signals: Sequence[int],
        say: Callable[[str], None] | None,
        wait_limit_s: float,
    ) -> None:
        """Reach nobody yet; signals that come are added to ``signals``.

        Folders of the run lie in ``scratch`` on each node and get ``files``. ``say`` is called once
        if the run has to wait, for ``wait_limit_s`` at most. ``row`` is how many ports in a row are
        held on all nodes.
        """
        self._launcher = launcher
        self._places = places
        self._id = run_id
        self._scratch = scratch
        self._head_only = head_only
        self._files = files
        self._row = row
        self._keeper: tuple[str, str] | None = None
        # In an allocation mpirun starts its daemons as steps, which Slurm ends with all below them.
        if head_only and not (launcher.on_this_machine or launcher.needs_allocation):
            self._keeper = keeper_file(scratch, run_id), source_of(keeper).decode("ascii")
        self.first_port = 0
        """The first port of the row, once the nodes are prepared."""
        self._signals = signals
        self._tell_user = self._say = say
        self._wait_limit_s = wait_limit_s
        self._give_up_at = math.inf
        self._reports = selectors.DefaultSelector()
        self._sweeps: dict[str, tuple[RemoteCall, float]] = {}
        self.clients: list[SupervisorClient] = []
        self.is_started = False
        """Whether programs may have been started, so that a signal is no reason to raise."""
        self._problems: list[tuple[Host, str]] = []
        self._check_life_at = 0.0
        self._over = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="dlperf-pulse", daemon=True)
        if launcher.remote:
            self._pulse.start()

    def gather(self) -> None:
        """Have all nodes ready at once, however often it takes to find all of them free."""
        again, self._give_up_at = False, time.monotonic() + self._wait_limit_s
        while not self._reached(again=again):
            again = True
            self._wait_for(self._queued_for())
            self._abandon(self.clients)
            self.clients = []
            self._pause()
        while not self._locked():
            busy = [client for client in self.clients if client.state is NodeState.BUSY]
            for client in self.clients:
                client.release()
            # Another row may be free at once.
            if busy:
                held = (f"{client.place.host.name}: {client.holder}" for client in busy)
                self._wait_for(
                    f"another run, from elsewhere, holds {'; '.join(dict.fromkeys(held))}"
                )
                self._pause()

    def folder(self, rank: int) -> str:
        """Name the folder of the run on a node."""
        return node_folder(self._scratch, self._id, rank)

    @property
    def in_front(self) -> Mapping[str, tuple[str, str]]:
        """What variables of a head node's program begin with there, and their defaults."""
        if self._keeper is None:
            return {}
        return launch_agents(self._launcher.python, self._keeper[0], self.clients[0].marker)

    def listen(self, limit_s: float, *, until: Callable[[], bool], patient: bool = False) -> None:
        """Take reports until a condition holds or it is too late.

        Unless ``patient``, a signal ends it: before the start with an ``InterruptedRunError``.
        """
        deadline = time.monotonic() + limit_s
        while not until() and time.monotonic() < deadline:
            if not patient and self._signals:
                if not self.is_started:
                    raise InterruptedRunError
                return
            self.take_reports()

    def take_reports(self) -> bool:
        """Take reports for a moment, or until one of them changes something; say whether one has.

        For a moment only: a signal's handler does not end the waiting. Of a thousand nodes, one
        shows a sign of life each millisecond, so that changes nothing and costs nothing else.
        """
        until = time.monotonic() + POLL_S
        left_s, changed = POLL_S, False
        while left_s > 0 and not changed:
            for key, _ in self._reports.select(left_s):
                client = key.data
                changed = client.receive() or changed
                if client.is_gone:
                    self._ignore(client)
            left_s = until - time.monotonic()
        return self._any_lost() or changed

    def _any_lost(self) -> bool:
        """Give up who shows no sign of life; look for them a few times a second only."""
        now = time.monotonic()
        if now < self._check_life_at:
            return False
        self._check_life_at = now + CHECK_LIFE_S
        for call, limit_s in self._sweeps.values():
            call.let_go_after(limit_s)
        found = False
        for client in self.clients:
            if not client.is_gone:
                client.check_life(now)
                if client.is_gone:
                    self._ignore(client)
                    found = True
        return found

    def end(self, grace_s: float = supervisor_client.TERMINATION_GRACE_S) -> None:
        """End what is left of the run: politely at first, unless in a hurry; then for certain."""
        try:
            # A node that is queued for, or does not answer, would keep all others waiting.
            self._abandon([client for client in self.clients if client.port is None])
            self._sweep()
            self._end_in_order(grace_s)
        finally:
            for client in self.clients:
                client.kill()
            all_ended = once_all(self.clients, lambda client: client.is_gone)
            self.listen(remains.REPORT_LIMIT_S, until=all_ended, patient=True)
            self._over.set()
            if self._launcher.remote:
                self._pulse.join()
            for client in self.clients:
                self._ignore(client)
                self._note(client, *client.close())
                if client.kept is not None and self._tell_user is not None:
                    self._tell_user(f"host {client.place.host.name}: {client.kept}")
            self._sweep()
            self._end_sweeps()
            self._reports.close()

    def _end_in_order(self, grace_s: float) -> None:
        """Ask for the end, and wait for it; with a second signal somebody is losing patience."""
        deadline = time.monotonic() + grace_s
        # Other nodes have nothing but what the first one's program has started: it is asked first.
        waves = [self.clients[:1], self.clients[1:]] if self._head_only else [self.clients]
        for wave in waves:
            for client in wave:
                client.end()
            ended = once_all(wave, lambda client: client.is_gone)
            self.listen(
                deadline - time.monotonic(),
                until=lambda ended=ended: len(self._signals) > 1 or ended(),  # type: ignore[misc]
                patient=True,
            )

    def _beat(self) -> None:
        """Tell distant supervisors each second that somebody is there, in a thread of its own.

        Reading logs from a slow disk, or writing to a terminal that was stopped, may hold the run's
        own thread up for longer than a supervisor waits.
        """
        while not self._over.wait(guardian.HEARTBEAT_INTERVAL_S):
            for client in tuple(self.clients):
                client.show_life()

    # ------------------------------------------------------------------ before the start

    def _reached(self, *, again: bool) -> bool:
        """Reach all nodes; false when some stay queued for, and keeping the others is no use."""
        allow_connections(len(self._places))
        for rank, place in enumerate(self._places):
            client = SupervisorClient(self._launcher, place, f"{self._id}.{rank}.", again=again)
            self.clients.append(client)
            self._reports.register(client, selectors.EVENT_READ, client)
        queues = self._launcher.queues
        all_reached = once_all(self.clients, lambda client: client.is_reached)
        if queues:
            self.listen(QUEUE_SILENCE_S, until=all_reached)
            if not all_reached():
                self._wait_for(self._queued_for())
        self.listen(QUEUE_LIMIT_S if queues else CONNECT_LIMIT_S, until=all_reached)
        for client in self.clients:
            client.check_reached(None if queues else CONNECT_LIMIT_S)
        return all(client.state is not NodeState.CONNECTING for client in self.clients)

    def _locked(self) -> bool:
        """Take all hosts at once or none, so that two controllers never wait for each other."""
        self.first_port = random.choice(PORT_ROWS)  # noqa: S311 - no secret
        machines = set()
        for rank, client in enumerate(self.clients):
            machine = "" if self._launcher.on_this_machine else client.place.host.name
            held = (machine, played_address(client.place.host))
            client.prepare(
                sweep=self._marked(client),
                folder=self.folder(rank),
                files=self._files,
                # Nodes that are one machine share its row.
                row=(self.first_port, 0 if held in machines else self._row),
                keeper=self._keeper,
            )
            machines.add(held)
        self.listen(
            CONNECT_LIMIT_S,
            until=once_all(self.clients, lambda client: client.preparation_is_known),
        )
        for client in self.clients:
            if client.told is not None and self._tell_user is not None:
                self._tell_user(f"host {client.place.host.name}: {client.told}")
                client.told = None
            client.check_prepared(CONNECT_LIMIT_S)
        return all(client.state is NodeState.PREPARED for client in self.clients)

    def _queued_for(self) -> str:
        queued = (c.place.host.name for c in self.clients if c.state is NodeState.CONNECTING)
        return f"{self._launcher.name} has queued the run for {', '.join(dict.fromkeys(queued))}"

    def _wait_for(self, why: str) -> None:
        """Tell once why the run has to wait, and raise when it has waited for too long."""
        if self._say is not None:
            self._say(f"waiting: {why}")
            self._say = None
        if time.monotonic() > self._give_up_at:
            raise waited_in_vain(self._wait_limit_s, why)

    def _pause(self) -> None:
        """Wait as long as nobody else does, so that two that collide do not collide again."""
        self.listen(random.uniform(0.5, 2.0), until=lambda: False)  # noqa: S311 - no secret

    # ------------------------------------------------------------------ the end

    def _abandon(self, clients: Sequence[SupervisorClient]) -> None:
        """Wait no longer for supervisors that have nothing to clean up."""
        for client in clients:
            self._ignore(client)
            client.abandon()

    def _ignore(self, client: SupervisorClient) -> None:
        # It may have been ignored before, and its pipe closed since.
        with contextlib.suppress(KeyError, ValueError):
            self._reports.unregister(client)

    def _sweep(self) -> None:
        """Begin to end what supervisors have left that are gone, each once."""
        for rank, client in enumerate(self.clients):
            if not client.needs_sweep or client.marker in self._sweeps:
                continue
            keeper_path = self._keeper and self._keeper[0]
            order = client.sweep_order(self._marked(client), self.folder(rank), keeper_path)
            limit_s = SWEEP_LIMIT_S if client.lost is None else LOST_SWEEP_LIMIT_S
            host = client.place.host
            try:
                call = start_remote(self._launcher.outside, host, source_of(sweep), order)
            except OSError as error:
                self._note(client, _not_swept(error.strerror or str(error)))
            else:
                self._sweeps[client.marker] = call, limit_s

    def _end_sweeps(self) -> None:
        """Wait for the sweeps; where one did not get there, somebody has to look."""
        for client in self.clients:
            if client.marker in self._sweeps:
                call, limit_s = self._sweeps[client.marker]
                output, reason = call.result(limit_s)
                reports = [
                    json.loads(line) for line in (output or b"").splitlines() if line[:1] == b"{"
                ]
                # A host that is out of reach cleans up by itself, as long as its supervisor lives.
                if client.lost is None and not any("clean" in report for report in reports):
                    self._note(client, _not_swept(reason))
                for report in reports:
                    if report.get("left"):
                        self._note(client, remains.unended(report["left"]))
                    if "at_end" in report:
                        self._note(client, str(report["at_end"]))

    def _note(self, client: SupervisorClient, *problems: str) -> None:
        self._problems += [(client.place.host, problem) for problem in problems]

    @property
    def problems(self) -> list[str]:
        """What went wrong at the end, as messages: one for all hosts of which the same is true."""
        by_problem: dict[str, dict[str, Host]] = {}
        for host, problem in self._problems:
            name = host.name.rpartition("@")[2]
            plain = Host(name=host.name, address=name)
            by_problem.setdefault(problem, {})[host.name] = plain
        return [
            f"host{'s' * (len(hosts) > 1)} {describe_hosts(hosts.values())}: {problem}"
            for problem, hosts in by_problem.items()
        ]

    def _marked(self, client: SupervisorClient) -> str:
        # What node 0 started on other nodes carries its marker.
        return f"{self._id}." if self._head_only else client.marker


def _not_swept(reason: str) -> str:
    return (
        f"its supervisor is gone, and nobody could look for what it has left "
        f"({reason}); end what has {processes.MARKER} in its environment there"
    )

"""The faults themselves: what happens to a run, and what the user should be told of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from clusters.processes import ancestors_of, processes
from clusters.requirements import command

from fault_matrix.session import Session

IGNORES_SIGINT: Final = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""What a program begins with that a script starts in the background."""
WORKER: Final = ("-n", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way for a run to end.

    ``act`` makes it happen, once the trainer is up, and says when the run has come to its end, from
    which the ten seconds count. ``told`` are words of what the session says of it, in this order;
    none where pytest itself is gone, or leaves by the signal.
    """

    name: str
    act: Callable[[Session], float]
    told: str = ""
    launchers: Sequence[str] = ("local", "ssh", "slurm", "mpirun", "sbatch", "kubernetes")
    arguments: Sequence[str] = ()
    prefix: Callable[[Session], Sequence[str]] = lambda _: ()
    behaviour: str = "sleeps"
    limits: tuple[float, float] = (90, 90)
    """Seconds that a run and a step may take."""
    needs: Callable[[Session], bool] = lambda _: True
    """Whether the place has what it takes."""
    let_go: Callable[[Session], object] = lambda _: None
    """What follows the ten seconds: a cut is mended, what was stopped continues."""
    is_followed: bool = True
    """Whether the place is there for another session."""
    is_swept: bool = False
    """Whether what is left is ended by the next run on the node, which says so."""


def _go_on(session: Session) -> float:
    session.go_on()
    return time.time()


def _no_step(session: Session) -> float:
    return max(session.moment("agent", rank) for rank in range(2)) + session.step_limit_s


def _no_time(session: Session) -> float:
    return max(session.moment("began", rank) for rank in range(2)) + session.time_limit_s


def _interrupt(session: Session) -> float:
    """Ctrl-C: a terminal sends it to all that belong to the command."""
    os.killpg(session.process.pid, signal.SIGINT)
    return time.time()


def _interrupt_twice(session: Session) -> float:
    _interrupt(session)
    time.sleep(0.5)  # two of a kind that wait together would arrive as one
    return _interrupt(session)


def _send(number: int, *whom: Callable[[Session], Sequence[int]]) -> Callable[[Session], float]:
    """Send a signal to all of them, by their numbers."""

    def act(session: Session) -> float:
        found = [pid for find in whom for pid in find(session)]
        assert found, "there is nothing to send a signal to"
        for pid in found:
            with suppress(ProcessLookupError):  # one may end with another
                os.kill(pid, number)
        return time.time()

    return act


def _kill(*whom: Callable[[Session], Sequence[int]]) -> Callable[[Session], float]:
    """As the kernel does that is out of memory; of several, none sees the end of another."""
    stop = _send(signal.SIGSTOP, *whom)
    kill = _send(signal.SIGKILL, *whom)
    return _both(stop, kill) if len(whom) > 1 else kill


def _stop(*whom: Callable[[Session], Sequence[int]]) -> Callable[[Session], float]:
    return _send(signal.SIGSTOP, *whom)


def _pytest(session: Session) -> list[int]:
    return [session.process.pid]


def _rank(session: Session) -> int:
    """The node that something happens to: the second one, unless all depends on the first."""
    return 0 if session.place.head_only else 1


def _trainer(session: Session) -> list[int]:
    return [session.pid("agent", _rank(session))]


def _worker(session: Session) -> list[int]:
    return [one.pid for one in session.workers()]


def _supervisor(session: Session) -> list[int]:
    return session.supervisor(_rank(session))


def _named_python(session: Session) -> list[int]:
    """What ``killall python3`` ends: it goes by the name that the system has of a process."""
    names = {pid: session.name_in_system(pid) for pid in session.noted}
    return [pid for pid, name in names.items() if name.startswith("python")]


def _clients(session: Session) -> list[int]:
    return [one.pid for one in session.clients()]


def _client(session: Session) -> list[int]:
    """What leads to the second node: an ssh or srun of ours; or mpirun."""
    if session.place.head_only:
        return [one.pid for one in session.clients("mpirun")]
    host = session.place.hosts[1]
    return [one.pid for one in session.clients() if host in one.command][:1]


def _both(*acts: Callable[[Session], float]) -> Callable[[Session], float]:
    return lambda session: max(act(session) for act in acts)


def _let_pytest_go(session: Session) -> None:
    session.process.send_signal(signal.SIGCONT)


def _cut(session: Session) -> float:
    assert session.place.cut is not None
    session.place.cut(session.place.hosts[1])
    return time.time()


def _mend(session: Session) -> None:
    assert session.place.mend is not None
    session.place.mend(session.place.hosts[1])


def _far_daemons(session: Session) -> list[int]:
    """What of Slurm leads to the second node."""
    above = ancestors_of(session.pid("agent", 1))
    host = f"-N {session.place.hosts[1]}"
    steps = [one.pid for one in above if one.command.startswith("slurmstepd")]
    return [*steps, *(one.pid for one in processes() if one.command.endswith(host))]


def _cut_off(session: Session) -> float:
    """Cut the network; of Slurm, where all nodes are one machine, stop what leads to the node."""
    return (_cut if session.place.cut is not None else _stop(_far_daemons))(session)


def _mend_all(session: Session) -> None:
    if session.place.cut is not None:
        _mend(session)
        return
    for one in processes():
        if one.command.startswith("slurmstepd") or "/slurmd " in one.command:
            os.kill(one.pid, signal.SIGCONT)


def _disconnect(session: Session) -> float:
    assert session.place.disconnect is not None
    session.place.disconnect(session.place.hosts[_rank(session)])
    return time.time()


def _can_be_cut(session: Session) -> bool:
    return session.place.cut is not None


def _cancel(session: Session) -> float:
    assert session.place.cancel is not None
    session.place.cancel()
    return time.time()


def _small_disk(session: Session) -> list[str]:
    """Give the session's logs a disk of 2 MiB, that nobody else sees."""
    folder = session.folder / "small"
    folder.mkdir(exist_ok=True)
    mount = f"{command('mount')} -t tmpfs -o size=2m none '{folder}' && exec \"$@\""
    return [command("unshare"), "--mount", "--", "sh", "-c", mount, "sh"]


def _is_root(_: Session) -> bool:
    return os.geteuid() == 0


_OVER_A_CONNECTION: Final = ("ssh", "slurm", "mpirun", "sbatch", "kubernetes")
_OVER_A_NETWORK: Final = ("ssh", "mpirun")

FAULTS: Final = (
    Fault(name="success, the trainer goes on", act=_go_on, behaviour="succeeds", told="ok"),
    Fault(
        name="success, the trainer leaves its children", act=_go_on, behaviour="exits", told="ok"
    ),
    Fault(name="crash", act=_go_on, behaviour="fails", told="failed"),
    Fault(name="SIGKILL of the trainer", act=_kill(_trainer), told="failed"),
    Fault(name="hang", act=_no_step, limits=(90, 3), told="hung"),
    Fault(name="time-out", act=_no_time, limits=(4, 90), told="hung time limit of 4 s"),
    Fault(name="Ctrl-C", act=_interrupt, told="KeyboardInterrupt"),
    Fault(name="Ctrl-C twice", act=_interrupt_twice, told="KeyboardInterrupt"),
    Fault(name="Ctrl-C with a worker", act=_interrupt, arguments=WORKER, told="KeyboardInterrupt"),
    Fault(name="SIGTERM", act=_send(signal.SIGTERM, _pytest)),
    Fault(name="SIGHUP", act=_send(signal.SIGHUP, _pytest)),
    Fault(
        name="SIGTERM in the background, with a worker",
        act=_send(signal.SIGTERM, _pytest),
        arguments=WORKER,
        prefix=lambda _: IGNORES_SIGINT,
    ),
    Fault(name="SIGKILL of pytest", act=_kill(_pytest)),
    Fault(
        name="SIGKILL of pytest in the background, with a worker",
        act=_kill(_pytest),
        arguments=WORKER,
        prefix=lambda _: IGNORES_SIGINT,
    ),
    Fault(name="SIGKILL of a worker", act=_kill(_worker), arguments=WORKER, told="worker crashed"),
    Fault(
        name="SIGKILL of an ssh, srun, mpirun",
        act=_kill(_client),
        launchers=("ssh", "slurm", "mpirun", "sbatch"),
        told="failed SIGKILL",
    ),
    Fault(
        name="SIGKILL of all ssh, srun, mpirun",
        act=_kill(_clients),
        launchers=_OVER_A_CONNECTION,
        told="failed SIGKILL",
    ),
    Fault(
        name="SIGKILL of all ssh, srun, mpirun and of pytest",
        act=_kill(_pytest, _clients),
        launchers=_OVER_A_CONNECTION,
    ),
    Fault(name="SIGKILL of a supervisor", act=_kill(_supervisor), told="failed supervisor killed"),
    Fault(
        name="SIGKILL of a supervisor and of pytest",
        act=_kill(_supervisor, _pytest),
        is_swept=True,
    ),
    Fault(name="killall -9 python3", act=_kill(_named_python), is_swept=True),
    Fault(
        name="SIGSTOP of a supervisor", act=_stop(_supervisor), told="failed supervisor was stopped"
    ),
    Fault(
        name="SIGSTOP of a supervisor, SIGKILL of pytest",
        act=_both(_stop(_supervisor), _kill(_pytest)),
        is_swept=True,
    ),
    Fault(
        name="SIGSTOP of pytest",
        act=_stop(_pytest),
        let_go=_let_pytest_go,
        told="failed heard nothing for",
    ),
    Fault(
        name="sshd ends a connection",
        act=_disconnect,
        launchers=_OVER_A_NETWORK,
        told="failed connection is lost",
    ),
    Fault(
        name="network cut",
        act=_cut,
        launchers=_OVER_A_NETWORK,
        needs=_can_be_cut,
        let_go=_mend,
        told="failed no sign of life",
    ),
    Fault(
        name="network cut, SIGKILL of pytest",
        act=_both(_cut_off, _kill(_pytest)),
        launchers=_OVER_A_CONNECTION,
        needs=lambda session: _can_be_cut(session) or session.place.launcher == "slurm",
        let_go=_mend_all,
    ),
    Fault(
        name="disk full",
        act=_go_on,
        behaviour="fills",
        arguments=("--dlperf-run-dir", "small/night"),
        prefix=_small_disk,
        needs=_is_root,
        told="failed disk is full",
    ),
    Fault(
        name="scancel",
        act=_cancel,
        launchers=("slurm", "sbatch"),
        told="failed was ended",
        is_followed=False,
    ),
)


def fault(name: str) -> Fault:
    """Give the fault of that name."""
    return next(one for one in FAULTS if one.name == name)

"""A trainer that does not want to end: ``TOKEN STEPS NODE_RANK SCRATCH``.

It ignores what asks it to end, and so does what it starts. All of it has the token among its
arguments, whatever becomes of environment, session and parents:

- ``worker``: in a session of its own, as torchrun starts them;
- ``daemon``: has left its parents, too, and holds on to the log;
- ``hidden``: another one, with an empty environment and no open file;
- ``still``: as hidden, and stopped.

Once all are up it trains, and waits to be told how to go on. With Open MPI each rank is a node.
All but ``still`` ends by itself after some minutes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LIFE_S = 300
ROLES = ("daemon", "hidden", "still")


def note(role: str, rank: str) -> None:
    """Tell that a process is up, and its number."""
    part = HERE / "up" / f"{role}{rank}.part"
    part.write_text(str(os.getpid()))
    part.rename(part.with_suffix(""))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def train(rank: str, first: int, last: int) -> None:
    for step in range(first, last + 1):
        record = f"rank={rank} step={step} time={step / 100:.6f} loss=1.0"
        say(f"dlperf step {record}")


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def play(role: str, rank: str) -> None:
    """Be one of those that the trainer starts, to the end of its life."""
    end = time.time() + LIFE_S
    if role in {"hidden", "still"}:
        os.closerange(0, 1000)
    note(role, rank)
    if role == "still":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(max(0.0, end - time.time()))


def start_others(arguments: list[str], rank: str) -> None:
    """Fork what does not want to end; twice, so that only the worker has a parent."""
    if os.fork():
        return
    os.setsid()
    for role in (HERE / "roles.txt").read_text().split():
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            environment = dict(os.environ) if role == "daemon" else {}
            python = [sys.executable, "-I", "-S", __file__, *arguments, role]
            os.execve(sys.executable, python, environment)  # noqa: S606 - no shell is wanted
        os.wait()
    play("worker", rank)
    os._exit(0)


def main(arguments: list[str]) -> None:
    token, steps, node_rank, scratch, *role = arguments
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", node_rank)
    if role:
        ignore_signals()
        play(role[0], node_rank)
        return
    places = f"rank={rank} world_size=2 nodes=2 devices_per_node=1"
    say(f"dlperf run {places} batch_per_device=4 precision=fp32")
    behaviour = (HERE / "behaviour.txt").read_text()
    if behaviour == "tame":
        train(rank, 1, int(steps))
        return
    note("began", rank)
    ignore_signals()
    start_others([token, steps, rank, scratch], rank)
    Path(scratch, f"of-{rank}").touch()
    train(rank, 1, 3)
    note("agent", rank)
    end = time.time() + LIFE_S
    while not (HERE / "go").exists() and time.time() < end:
        time.sleep(0.02)
    if behaviour == "fails" and rank == "1":
        os._exit(3)
    while behaviour == "fills":
        say("x" * 4000)
    if behaviour in {"succeeds", "exits"}:
        train(rank, 4, int(steps))
    if behaviour == "exits":
        os._exit(0)
    time.sleep(LIFE_S)


if __name__ == "__main__":
    main(sys.argv[1:])

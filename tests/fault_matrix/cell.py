"""One cell of the matrix: a session, a fault, what is left, and the session that follows."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fault_matrix.faults import WORKER, Fault
from fault_matrix.session import NotUpError, Session, last_line

PROMISE_S: Final = 5.0
"""Within so many seconds nothing is left of a run that has ended, however it has."""
LIMIT_S: Final = 10.0
"""What still runs after so long, or as many looks, has been left."""
TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a session that met a fault.

    ``seconds`` is how long it took until nothing was left, unless ``left`` names what still ran
    after ten. ``files`` are scratch folders and temporary files that were left to the next
    session; ``next_one`` says what went wrong with it, ``kept`` what was left even after it.
    """

    told: str
    is_told: bool
    seconds: float = 0.0
    left: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    next_one: str = ""
    kept: tuple[str, ...] = ()
    swept: bool = False
    """Whether the next session had to end what was left."""

    def problems(self) -> list[str]:
        """What is not as it should be."""
        found = []
        if self.left:
            found.append(f"{len(self.left)} left: {', '.join(self.left)}")
        if not self.is_told:
            found.append(f"told: {self.told}")
        if self.next_one:
            found.append(f"the next session: {self.next_one}")
        if self.kept:
            found.append(f"left after the next session: {', '.join(self.kept)}")
        return found


def run_cell(session: Session, fault: Fault, *, follow: bool = True) -> Outcome | None:
    """Start a session, let it meet the fault, and look; ``None`` where the place cannot have it.

    Then a session with a tame trainer runs on the same hosts, if one is to ``follow``: it has to
    wait for nothing, to pass, and to leave nothing of either.
    """
    session.time_limit_s, session.step_limit_s = fault.limits
    try:
        _start(session, fault)
        if not fault.needs(session):
            return None
        due = fault.act(session)
        gone_at, left = session.gone_at(due, LIMIT_S)
        swept = bool(left) and fault.is_swept
        fault.let_go(session)
        told, is_told = _told(session, fault.told)
        files = tuple(session.files_left())
        next_one, kept = (
            _next(session, fault, swept=swept) if follow and fault.is_followed else ("", ())
        )
        return Outcome(
            seconds=max(0.0, gone_at - due),
            left=() if swept else tuple(left),
            swept=swept,
            files=files,
            told=told,
            is_told=is_told,
            next_one=next_one,
            kept=kept,
        )
    finally:
        session.stop()


def _start(session: Session, fault: Fault) -> None:
    """Have the trainer up; the daemons of Open MPI may not find each other on one machine."""
    prefix = fault.prefix(session)
    for _ in range(TRIES - 1):
        with suppress(NotUpError):
            session.start(*fault.arguments, behaviour=fault.behaviour, prefix=prefix)
            return
        session.stop()
        time.sleep(1)
    session.start(*fault.arguments, behaviour=fault.behaviour, prefix=prefix)


def _told(session: Session, words: str) -> tuple[str, bool]:
    """What the session says of its run, and whether the words stand in it in this order."""
    try:
        session.ended()
    except subprocess.TimeoutExpired as error:
        return f"nothing: pytest had not ended {error.timeout:g} s later", False
    runs = [f"{run['status']}: {run['reason'] or ''}" for run in session.runs()]
    told = (runs or _errors(session) or [""])[0].partition("\n")[0]
    for number, host in enumerate(session.place.hosts, start=1):
        told = told.replace(host, f"gpu{number:02}")
    pattern = ".*".join(map(re.escape, words.split()))
    everything = "\n".join([*runs, session.output])
    return told, re.search(pattern, everything, re.DOTALL) is not None


def _errors(session: Session) -> list[str]:
    lines = session.output.splitlines()
    return [line.strip("!E ") for line in lines if line.startswith(("E  ", "!!!", "worker "))]


def _next(session: Session, fault: Fault, *, swept: bool) -> tuple[str, tuple[str, ...]]:
    """Run a tame trainer; what went wrong, and what is left after it.

    With ``swept`` it has to say what it has ended of the session before.
    """
    session.process.kill()  # if it has not ended by itself
    begun = time.time()
    # What workers have left, those of the next session remove.
    workers = WORKER if fault.arguments == WORKER else ()
    session.begin("tame", "--dlperf-create-baselines", *workers)
    try:
        code: object = session.ended()
    except subprocess.TimeoutExpired as error:
        session.process.kill()
        code = f"none after {error.timeout:g} s"
    took = time.time() - begun
    problems = []
    if "waiting" in session.output and not session.place.queues:
        problems.append(f"it waited, {took:.1f} s in all")
    if swept and "of an earlier run" not in session.output:
        problems.append("it does not say that it has ended what was left")
    if code:
        problems.append(f"exit code {code}: {[*_errors(session), last_line(session.output)][0]}")
    kept = [*session.left_after(LIMIT_S), *session.files_left()]
    return "; ".join(problems), tuple(kept)

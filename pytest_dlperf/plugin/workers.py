"""xdist: what the controller and its workers hand each other, and that workers end with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import datetime
from typing import Any, Final, TypeVar, final

from msgspec import Struct, convert, to_builtins

from pytest_dlperf.model.case import Case

T = TypeVar("T")

LOOK_S: Final = 0.2
"""Seconds between two checks of a worker whether its controller is there."""
END_LIMIT_S: Final = 3.5
"""Seconds that a worker may take to end its run in order once the controller is gone."""

_KEY: Final = "dlperf"


@final
class WorkerInput(Struct, frozen=True, kw_only=True):
    """What a session is, which its controller decides for its workers."""

    session: str
    """An id that no other session has."""
    started: str
    """When it began: ISO 8601 with its zone."""
    session_dir: str = ""
    """Where its logs go."""
    shared_folder: str | None = None
    """Where workers share measurements."""
    mistake: str | None = None
    """Why the controller could not start."""

    @classmethod
    def of_new_session(cls) -> WorkerInput:
        """Start a session with a new id."""
        started = datetime.now().astimezone().isoformat(timespec="milliseconds")
        return cls(session=os.urandom(16).hex(), started=started)


@final
class WorkerOutput(Struct, frozen=True):
    """What a worker tells at its end, beside the reports of its tests."""

    selected: list[tuple[Case, str]]
    deselected: set[tuple[str, str]]
    history_fault: str | None
    host_faults: list[tuple[str, str]]
    unspoken: list[str]
    """What it was given, and no message says: the controller writes the page."""


def hand_over(channel: dict[str, Any], given: Struct) -> None:
    """Put a value into ``workerinput`` or ``workeroutput``."""
    channel[_KEY] = to_builtins(given)


def handed_over(holder: object, channel: str, kind: type[T]) -> T | None:
    """Return the value in the ``channel`` of a config or node; ``None`` without."""
    given = getattr(holder, channel, {}).get(_KEY)
    return None if given is None else convert(given, kind)


def end_with_controller() -> None:
    """End this worker as by SIGTERM as soon as its controller is gone.

    xdist gives a worker that lost its controller five seconds, then sends it a SIGINT, which does
    nothing in a job that was started in the background: there SIGINT is ignored. Meanwhile its run
    would go on. A controller that is gone already gives no test to run.
    """
    threading.Thread(
        target=_watch, args=(os.getppid(),), name="dlperf-controller", daemon=True
    ).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    if signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(END_LIMIT_S)
    # The supervisors of its run end that when this process is gone.
    os.kill(os.getpid(), signal.SIGKILL)

"""xdist's two sides: what the controller tells its workers, and that they end with it."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pytest_dlperf.logs.tree import LogIndex

LOOK_S: Final = 0.2
"""A worker looks so often whether its controller is there."""
END_LIMIT_S: Final = 3.5
"""A worker may take so long to end its run in order once the controller is gone."""

_KEY: Final = "dlperf"


@final
@dataclass(frozen=True, slots=True)
class Beginning:
    """By what a session is known: an id that no other has, and when it began."""

    session: str
    at: str
    """ISO 8601 with its zone."""

    @classmethod
    def now(cls) -> Beginning:
        """Begin a session."""
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        return cls(os.urandom(16).hex(), at)


@final
@dataclass(frozen=True, slots=True)
class Told:
    """What the controller has found out already."""

    beginning: Beginning
    session_dir: Path
    shared_folder: Path
    """Where workers keep measurements for each other."""
    index: LogIndex | None
    """The logs to judge, where there are any."""


def tell(node: Any, told: Told) -> None:
    """Tell a new worker what it need not find out."""
    node.workerinput[_KEY] = pickle.dumps(told)


def told_by_controller(config: pytest.Config) -> Told | None:
    """Return what this worker was told; ``None`` where it was told nothing, or is none."""
    told = getattr(config, "workerinput", {}).get(_KEY)
    return None if told is None else pickle.loads(told)  # noqa: S301 - ours


def hold_folders(session_dir: Path, shared_folder: Path | None) -> None:
    """Have no other session take the folders of this one while a worker of it lives."""
    from pytest_dlperf.files.taken import MARK, hold

    for place in filter(None, (session_dir / MARK, shared_folder)):
        hold(place)


def end_with_controller() -> None:
    """Have this worker ended as soon as its controller is gone, as by SIGTERM.

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

"""Ends on a node what is left of a run whose watchers were killed, stopped, or cut off.

It is found by its mark (``processes``), so no file is read that others could have written: a
second connection brings the order, and the next run on the machine looks for marks without
watchers. It is a part of the supervisor, and a program of its own.
"""

import json
import os
import signal
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from pytest_dlperf.node.processes import (
    KILL_LIMIT_S,
    POLL_S,
    Below,
    Marked,
    end_all,
    marked_runs,
    send,
    watched_runs,
    watchers,
)
from pytest_dlperf.node.remains import Remains, report

if TYPE_CHECKING:
    from collections.abc import Callable

_BELOW_LIMIT_S = 1.0


def end_earlier() -> "tuple[list[int], list[int]]":
    """End what earlier runs of this user have left on this machine, whose watchers are gone.

    Gives the processes that were found, and those that are left.
    """
    runs = set(marked_runs())
    # Watchers outlive what they watch: what is there still after a look for them is left over.
    dead = runs and runs - watched_runs()
    found = set()  # type: set[int]
    left = set()  # type: set[int]
    for run, numbers in marked_runs().items() if dead else ():
        if run in dead:
            found.update(numbers)
            left.update(end_all(Marked(run + "."), KILL_LIMIT_S))
    return sorted(found), sorted(left)


def clean_up(order: "dict[str, Any]", tell: "Callable[..., object]" = report) -> None:
    """End all of a run on this node, its watchers too, and report like a supervisor."""
    marker, patience_s = order.pop("watched_by"), order.pop("patience_s")
    remains = Remains()
    remains.note(**order)
    # A watcher that was stopped ends the run in order by itself, once it is continued.
    for process in watchers(marker):
        send(process, signal.SIGCONT)
    deadline = time.monotonic() + patience_s
    while watchers(marker) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    left = set()  # type: set[int]
    for process in watchers(marker):
        left.update(end_all(Below(process), _BELOW_LIMIT_S))
        send(process, signal.SIGKILL)
    left.update(remains.end())
    tell(final={"left": sorted(left)})
    remains.remove_files()


def main() -> int:
    """Take the order, and follow it to the end whether or not it is waited for."""
    order = json.loads(sys.stdin.readline())
    with warnings.catch_warnings():
        # The other thread of this process only waits for the end of its input.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    os.setsid()
    clean_up(order)
    return 0


if __name__ == "__main__":
    sys.exit(main())

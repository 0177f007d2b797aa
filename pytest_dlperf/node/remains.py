"""What there is of a run on its node and has to be gone in the end, whoever sees to that.

While a run lives that is its supervisor. Where that was killed, stopped or cut off, it is this
program, whose order a second connection brings, or the supervisor of the next run on the machine.
They find processes by their mark (``processes``): no file is read that others could have written.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pytest_dlperf.node.host import remove
from pytest_dlperf.node.processes import (
    KILL_LIMIT_S,
    POLL_S,
    descendants,
    end_all,
    end_with_input,
    is_stopped,
    marked,
    marked_runs,
    run_of,
    supervisors,
)

AT_END_LIMIT_S = 5.0
"""What is run at the end may take so long."""
REPORT_LIMIT_S = KILL_LIMIT_S + AT_END_LIMIT_S + 4.0
"""Time from an order to kill a run to the report of what is left, whatever is stuck."""

_MIN_LIMIT_S = 1.0
_BELOW_LIMIT_S = 1.0
_LAST_WORDS = 500


def report(**message: object) -> None:
    """Report to the sender of orders, as a line of standard output."""
    line = json.dumps(message).encode("ascii") + b"\n"
    with contextlib.suppress(OSError):  # its reader is gone
        # What a login shell has printed may go on in this line.
        os.write(1, b"\n" + line)


def end_processes(
    run: "Mapping[str, Any]",
    *looks: "Callable[[], list[int]]",
    pause: "Callable[[float], object]" = time.sleep,
) -> "list[int]":
    """Kill what looks find of a run, then what has its mark, and run what is for the end.

    ``run`` says what the markers ``sweep`` begin with, and which command is run ``at_end`` in
    which ``environment``. Gives what is left. Meanwhile ``pause`` is called to wait for seconds.
    """
    deadline = time.monotonic() + KILL_LIMIT_S
    left = set()  # type: set[int]
    # Descendants first: what they are doing for other nodes ends with them.
    for look in (*looks, lambda: marked(run["sweep"])):
        limit_s = max(deadline - time.monotonic(), _MIN_LIMIT_S)
        left.update(end_all(look, limit_s, pause))
    if run["at_end"]:
        _run_at_end(run["at_end"], run["environment"], pause)
    return sorted(left)


def remove_files(run: "dict[str, Any]") -> None:
    """Remove a run's ``folder`` with all that is in it; report what has to stay."""
    folder = run.pop("folder", None)
    kept = None if folder is None else remove(os.fsdecode(as_bytes(folder)))
    if kept is not None:
        report(note=kept)


def _run_at_end(
    command: "list[str]", added: "Mapping[str, str]", pause: "Callable[[float], object]"
) -> None:
    """Run the command that a run has for its end, and report what went wrong."""
    environment = dict(os.environb)
    environment.update({as_bytes(k): as_bytes(v) for k, v in added.items()})
    try:
        process = subprocess.Popen(  # noqa: S603 - it is what the order says
            [as_bytes(argument) for argument in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        report(at_end=f"{command[0]}: {os.strerror(error.errno or 0)}")
        return
    deadline = time.monotonic() + AT_END_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        pause(POLL_S)
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        report(at_end=f"{' '.join(command)}: not done after {AT_END_LIMIT_S:g} s")
    elif process.returncode and process.stderr is not None:
        # What it has started may have its errors still: there is no waiting for their end.
        os.set_blocking(process.stderr.fileno(), False)
        said = (process.stderr.read() or b"").decode("utf-8", "replace").strip()
        last = said[-_LAST_WORDS:].rpartition("\n")[2]
        report(at_end=f"{' '.join(command)}: exit status {process.returncode}: {last}")


def sweep_orphans(pause: "Callable[[float], object]" = time.sleep) -> "tuple[list[int], list[int]]":
    """End what earlier runs of this user have left on this machine, of which no supervisor runs.

    Gives the processes that were found, and those that are left.
    """
    runs = set(marked_runs())
    found = supervisors()
    running = {run_of(marker) for number, marker in found if not is_stopped(number)}
    # Supervisors outlive what they watch: what is there still after a look for them is left over.
    left_over = marked_runs() if runs - running else {}
    ended = set()  # type: set[int]
    left = set()  # type: set[int]
    for number, marker in found:
        if run_of(marker) not in running:
            ended.add(number)
            left.update(_end_supervisor(number, pause))
    for run in runs - running:
        if run in left_over:
            ended.update(left_over[run])
            left.update(end_all(partial(marked, run + "."), KILL_LIMIT_S, pause))
    return sorted(ended), sorted(left)


def clean_up(run: "dict[str, Any]") -> None:
    """End all of a run on this node, its supervisor too."""
    left = set()  # type: set[int]
    for number, marker in supervisors():
        if marker == run["marker"]:
            left.update(_end_supervisor(number))
    left.update(end_processes(run))
    report(final={"left": sorted(left)})
    remove_files(run)


def _end_supervisor(process: int, pause: "Callable[[float], object]" = time.sleep) -> "list[int]":
    """End a supervisor and what is below it, which would be lost from sight after it."""
    left = end_all(partial(descendants, process), _BELOW_LIMIT_S, pause)

    def itself() -> "list[int]":
        return [number for number, _ in supervisors() if number == process]

    return left + end_all(itself, _BELOW_LIMIT_S, pause)


def describe_survivors(numbers: "Sequence[int]") -> str:
    """Say for people which processes could not be ended, and what to do."""
    return (
        f"{numbered(numbers)} could not be ended: another user's, or stuck in the kernel; look "
        f"there with ps -o pid,user,stat,wchan,args -p {','.join(map(str, numbers))}, and end or "
        "restart what holds them"
    )


def numbered(numbers: "Sequence[int]") -> str:
    """Name processes by their numbers."""
    return f"process{'es' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def as_bytes(text: str) -> bytes:
    """Give the bytes that an order has as text."""
    return text.encode("latin-1")


def main() -> int:
    """Take the order, and follow it to the end whether or not it is waited for."""
    order = json.loads(sys.stdin.readline())
    child = os.fork()
    # Both do it, so that it is done when the other process group is killed.
    os.setpgid(child, child)
    if child:
        end_with_input()
        return os.waitpid(child, 0)[1]
    clean_up(order)
    return 0


if __name__ == "__main__":
    sys.exit(main())

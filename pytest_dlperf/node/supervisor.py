"""Runs one program, and in the end leaves none of its descendants behind; itself a program.

A launcher of distributed training starts its workers in sessions of their own, and they outlive it.
On Linux the supervisor is therefore a subreaper: orphans below it are reparented to it. So
everything the program has started stays below the supervisor, whatever its session,
group or environment, unless a service of the machine has been asked to start it. As a second net,
processes with the run's mark (``processes``) are looked for in the whole machine. What is left of a
run whose supervisor is killed or stopped itself, others end (``remains``).

Orders come as lines on standard input, a word and a JSON object each: ``prepare``, ``start``,
``release``, which takes back what was prepared, and ``end``; any other only is a sign of life. The
end of the input is the end of the sender of orders: what is left is killed, and the next run may
begin at once. So it is after a silence: a network between may be cut, and the sender be stopped.
SIGTERM, SIGINT and SIGHUP mean ``end``, and a second one kills; those that were ignored when it
started stay so. Reports are JSON objects, one on each line of
standard output, one a second at least. What the program prints goes through a pipe to the
supervisor's standard error, and reports say when it came.
"""

import contextlib
import enum
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pytest_dlperf.node.containers import filled
from pytest_dlperf.node.host import acquire_socket_lock, holder_of, made_folder
from pytest_dlperf.node.processes import (
    KILL_LIMIT_S,
    MARKER,
    become_reaper,
    descendants,
    die_with_parent,
    send,
    set_mark,
)
from pytest_dlperf.node.relay import Relay
from pytest_dlperf.node.remains import (
    as_bytes,
    describe_survivors,
    end_processes,
    numbered,
    remove_files,
    report,
    sweep_orphans,
)

HEARTBEAT_INTERVAL_S = 1.0
"""Interval between signs of life of each side."""

_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NOT_STARTED = 127  # as shells have it
_SIGNALLED = 128
_TICK_S = 0.01
_TELL_S = 0.2
_DRAIN_LIMIT_S = 2.0
"""The reader of the output may take so long to have what was printed before an end."""


class Stage(enum.IntEnum):
    """The life of a supervisor, which never goes back."""

    SERVING = 0  # it follows orders
    ENDING = 1  # what it has started is asked to end, then killed
    KILLING = 2  # what it has started is killed at once


class Supervisor:
    """Starts a program, and ends all that came of it."""

    def __init__(self, timeout_s: float, marker: str) -> None:
        """Take signals from now on, and orders less than ``timeout_s`` seconds apart."""
        become_reaper()
        self._timeout_s = timeout_s
        self._marker = marker
        self._rank = marker.split(".")[1]
        self._resources = {
            "sweep": marker,
            "at_end": [],
            "environment": {},
        }  # type: dict[str, Any]
        self._heard_at = self._reported_at = time.monotonic()
        self._input = b""
        self._listening = True
        self._stage = Stage.SERVING
        self._has_children = False
        self._program = None  # type: subprocess.Popen[bytes] | None
        self._relay = None  # type: Relay | None
        self._exit_code = None  # type: int | None
        self._ended_at = None  # type: float | None
        self._tell_at = 0.0
        self._grace_s = 0.0
        self._locks = contextlib.ExitStack()
        self._folder_lock = contextlib.ExitStack()
        self._wake_up, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        # A signal without a handler would not wake up a waiting process.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        report(ready=sys.version.split()[0])

    def run(self) -> int:
        """Follow the orders to the end, and return an exit code by the program's."""
        self._wait(lambda: self._stage > Stage.SERVING)
        if self._program is not None:
            self._ask_to_end()
            self._signal_program(signal.SIGKILL)
        # Without a child there is no descendant either: those of a child that ended are children.
        below = [partial(descendants, os.getpid())] if self._has_children else []
        left = end_processes(self._resources, *below, pause=self._pause)
        if not left:
            self._wait(lambda: not self._has_children, time.monotonic() + KILL_LIMIT_S)
        self._locks.close()
        relay = self._relay
        if relay is not None:
            relay.flush()
            self._wait(lambda: relay.is_flushed, time.monotonic() + _DRAIN_LIMIT_S)
            self._tell_arrivals(hurry=True)
        # Slurm asks all of a job to end, and while Python exits it has no handlers any more.
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # The run is over here; what it has written may take long to remove.
        report(final={"left": left})
        self._release()
        if self._program is None:
            return 0
        code = self._program.returncode = self._exit_code  # it has been waited for here
        return _NOT_STARTED if code is None else code if code >= 0 else _SIGNALLED - code

    def _ask_to_end(self) -> None:
        """Ask at first, before anything is killed.

        The program itself is asked before the others, because it may know how to end them.
        """
        deadline = time.monotonic() + self._grace_s
        self._signal_program(signal.SIGTERM)
        self._wait(lambda: self._stage is Stage.KILLING or self._exit_code is not None, deadline)
        if self._stage is not Stage.KILLING and time.monotonic() < deadline:
            for process in descendants(os.getpid()):
                send(process, signal.SIGTERM)
            self._wait(lambda: self._stage is Stage.KILLING or not self._has_children, deadline)

    def _advance(self, stage: Stage) -> None:
        self._stage = max(self._stage, stage)

    def _wait(self, done: "Callable[[], bool]", deadline: float = float("inf")) -> None:
        """Take orders, and the exit codes of children, until it is done or too late."""
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            sources = [self._wake_up, 0] if self._listening else [self._wake_up]
            silent_s = self._heard_at + self._timeout_s - time.monotonic()
            often_s = HEARTBEAT_INTERVAL_S if self._relay is None else _TELL_S
            if self._relay is not None and not self._relay.is_flushed:
                often_s = _TICK_S
            limit_s = min(left_s, often_s, max(0.0, silent_s) + _TICK_S)
            ready = select.select(sources, [], [], limit_s)[0]
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            if 0 in ready:
                self._take_orders()
            self._reap()
            self._tell_arrivals()
            now = time.monotonic()
            if self._listening and now - self._heard_at > self._timeout_s:
                report(deserted=True)
                self._be_alone()
            if now - self._reported_at >= HEARTBEAT_INTERVAL_S:
                self._reported_at = now
                report(alive=True)

    def _pause(self, seconds: float) -> None:
        self._wait(lambda: False, time.monotonic() + seconds)

    def _tell_arrivals(self, *, hurry: bool = False) -> None:
        """Report when output came, and the end of the program once it was passed on.

        Not more than some times a second, nor where the reader of reports would be waited for.
        """
        relay, now = self._relay, time.monotonic()
        if relay is None:
            return
        has_ended = self._ended_at is not None and (
            hurry or relay.is_flushed or now - self._ended_at >= _DRAIN_LIMIT_S
        )
        if now >= self._tell_at or has_ended or hurry:
            self._tell_at = now + _TELL_S
            while select.select([], [1], [], 0)[1]:
                told = relay.pending_arrivals()
                if told is None:
                    break
                report(**told)
        if has_ended:
            self._ended_at = None
            report(ended=self._exit_code)

    def _be_alone(self) -> None:
        """Go on without a sender of orders."""
        self._listening = False
        self._advance(Stage.KILLING)

    def _take_orders(self) -> None:
        received = os.read(0, 65536)
        if not received:
            self._be_alone()
            return
        self._heard_at = time.monotonic()
        *lines, self._input = (self._input + received).split(b"\n")
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"prepare":
                self._prepare(json.loads(rest.decode("ascii")))
            if word == b"release":
                self._release()
            if word == b"start":
                self._start(json.loads(rest.decode("ascii")))
            if word == b"end":
                self._advance(Stage.ENDING)

    def _prepare(self, order: "dict[str, Any]") -> None:
        """Get the node ready: lock its devices, make the run's folder.

        ``device_locks`` are held against other runs; ``run_lock`` shows a machine of two names,
        which would wait for itself. In the end processes whose marker begins with ``sweep`` are
        killed, and ``node_folder`` is removed.
        """
        try:
            if order["run_lock"] is not None and not self._lock(order["run_lock"]):
                report(cannot="another host of this run is the same machine; name it once")
                return
            # One that was stopped has its locks still.
            ended, left = sweep_orphans(self._pause)
            if ended:
                whose = "of an earlier run, whose supervisor was killed or stopped"
                report(note=f"ended {numbered(ended)} {whose}")
            if left:
                self._locks.close()
                report(cannot=f"{describe_survivors(left)}; an earlier run has left them here")
                return
            taken = [name for name in order["device_locks"] if not self._lock(name)]
            if taken:
                self._locks.close()
                report(busy=holder_of(taken[0]))
                return
            folder = os.fsdecode(as_bytes(order["node_folder"]))
            self._folder_lock.callback(os.close, made_folder(folder, order["files"]))
        except OSError as error:
            report(cannot=str(error))
            return
        self._resources["folder"] = order["node_folder"]
        self._resources["sweep"] = order["sweep"]
        report(prepared=True)

    def _release(self) -> None:
        remove_files(self._resources)
        self._folder_lock.close()
        self._locks.close()

    def _lock(self, name: str) -> bool:
        """Take a lock of this machine, if it is free."""
        holder = acquire_socket_lock(name)
        if holder is not None:
            self._locks.enter_context(holder)
        return holder is not None

    def _start(self, order: "dict[str, Any]") -> None:
        """Start the program; it is asked to end ``grace_s`` seconds before it is killed.

        ``environment`` is added to the supervisor's own, but for names that match ``without``. It
        runs in ``folder``, or where the supervisor does if that is neither there nor needed. The
        lines of its ``log_file`` are passed on with its output, or all of it when the program has
        ended (``log_file_whole``). The command ``at_end`` is run, in the
        same environment, when all that it has started is gone.
        """
        self._grace_s = order["grace_s"]
        added = order["environment"]
        self._resources["at_end"] = order["at_end"]
        self._resources["environment"] = {k: v for k, v in added.items() if k != MARKER}
        is_foreign = re.compile(as_bytes(order["without"])).fullmatch
        environment = {k: v for k, v in os.environb.items() if not is_foreign(k)}
        environment.update({as_bytes(key): as_bytes(value) for key, value in added.items()})
        for name, (text, default) in order["in_front"].items():
            given = environment.get(as_bytes(name), as_bytes(default))
            environment[as_bytes(name)] = as_bytes(text) + b" " + given
        if order["python_path"]:
            paths = [*map(as_bytes, order["python_path"]), environment.get(b"PYTHONPATH", b"")]
            environment[b"PYTHONPATH"] = b":".join(filter(None, paths))
        place = as_bytes(order["folder"])
        is_there = os.path.isdir(place)
        if order["needs_folder"] and not is_there:
            problem = f"its working directory {os.fsdecode(place)!r} is not a folder there"
            report(cannot=f"cannot start node {self._rank}: {problem}")
            return
        base = place if is_there else os.getcwdb()
        name = order["log_file"]
        file = None if name is None else os.path.join(base, as_bytes(name))
        relay = Relay(2, file, whole_file=order.get("log_file_whole", False))
        arguments = filled(order["arguments"]) if order.get("container") else order["arguments"]
        problem = ""
        try:
            self._program = subprocess.Popen(  # noqa: S603 - to start it is the purpose
                [as_bytes(argument) for argument in arguments],
                cwd=place if is_there else None,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=relay.entrance,
                stderr=relay.entrance,
                start_new_session=True,
                preexec_fn=self._mark_child,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            problem = os.strerror(error.errno or 0)
        except ValueError as error:  # a text that no system call takes
            problem = str(error)
        os.close(relay.entrance)
        if self._program is None:
            where = "" if "/" in arguments[0] else " in the folders of PATH"
            program = f"program {arguments[0]!r}{where}"
            report(cannot=f"cannot start node {self._rank}: {program}: {problem}")
        else:
            self._has_children = True
            self._relay = relay
            report(started=self._program.pid)
            relay.start()

    def _mark_child(self) -> None:
        die_with_parent()
        set_mark(self._marker)

    def _reap(self) -> None:
        while self._has_children:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return
            if not child:
                return
            if self._program is not None and child == self._program.pid:
                exited = os.WIFEXITED(status)
                self._exit_code = os.WEXITSTATUS(status) if exited else -os.WTERMSIG(status)
                self._ended_at = time.monotonic()
                if self._relay is not None:
                    self._relay.flush()

    def _signal_program(self, number: int) -> None:
        """Signal the program's process group, whose number is its own until it is reaped."""
        if self._program is not None and self._exit_code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, number)

    def _on_signal(self, number: int, _frame: object) -> None:
        report(signal=signal.Signals(number).name)
        self._advance(Stage.ENDING if self._stage is Stage.SERVING else Stage.KILLING)


if __name__ == "__main__":
    # Without taking apart what was imported: nothing is left to be written.
    os._exit(Supervisor(float(sys.argv[1]), sys.argv[2]).run())

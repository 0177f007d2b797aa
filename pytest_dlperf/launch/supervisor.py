"""Runs one program, and in the end leaves none of its descendants behind; itself a program.

A launcher of distributed training starts its workers in sessions of their own, and they outlive it.
On Linux the supervisor is therefore the reaper of all processes below it: whose parent ends becomes
its child. So everything the program has started stays below the supervisor, whatever its session,
group or environment, unless a service of the machine has been asked to start it. As a second net,
processes with the run's marker in their environment are looked for in the whole machine.

Orders come as lines on standard input: ``prepare`` and ``start`` with a JSON object, ``release``,
which takes back what was prepared, ``end``, ``kill``, and an empty line, which only says that
somebody is there. The end of the input is the end
of whoever gives the orders, and means ``kill``: the next run may begin at once. So does silence,
where a network lies between that could be cut. SIGTERM, SIGINT and SIGHUP mean ``end``, and
``kill`` when one comes after that. Reports are JSON objects, one on each line of standard output.
What the program prints goes to the supervisor's standard error.

It is sent to the node that it runs on, and imports the standard library only. It has to run on
Python 3.6, so that the Python of a cluster's node is enough.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARKER = "DLPERF_RUN_ID"
"""Environment variable that is handed down to every process below a supervisor. Its value begins
with the run's number and the node's rank, each with a dot behind it."""
KILL_LIMIT_S = 5.0
"""How long killed processes may take to be gone; one that is stuck in the kernel takes long."""
HEARTBEAT_INTERVAL_S = 1.0
"""How often each side tells the other that it is there, where a network lies between them."""

_PROC = "/proc"
_POLL_S = 0.01
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
try:
    import ctypes

    _LIBRARY = ctypes.CDLL(None)  # type: ctypes.CDLL | None
except (ImportError, OSError):
    _LIBRARY = None
_NOT_STARTED = 127  # as shells have it
_SIGNALLED = 128
_SCRATCH = re.compile(r"pytest-dlperf-[0-9a-f]{32}-[0-9]+$")
_STALE_S = 60.0


def lock_name(scope: str, device: "int | str") -> str:
    """The name that whoever uses a device of a host binds a socket to, in no folder.

    The kernel frees it with the process; names are those of one network namespace.
    """
    return f"\0pytest-dlperf/{scope}/{device}"


def prepare_order(  # noqa: PLR0913 - all that is made ready, by name
    *,
    scope: str,
    devices: "list[int]",
    sweep: str,
    scratch: "str | None",
    ipv6: bool = False,
    taken_over: bool = False,
) -> bytes:
    """The order to get a node ready: lock its devices, hold a port, make the scratch folder.

    ``devices`` are locked against every other run on the machine; none are where a node of the
    same run on the same machine has locked them already. ``scope`` tells hosts apart that are
    played by one machine. Processes whose marker begins with ``sweep`` are killed in the end, and
    the scratch folder is removed; with ``taken_over`` it is that of a supervisor that is gone.
    """
    order = {
        "scope": scope,
        "devices": devices,
        "sweep": sweep,
        "scratch": None if scratch is None else _as_text(scratch),
        "taken_over": taken_over,
        "ipv6": ipv6,
    }
    return b"prepare " + json.dumps(order).encode("ascii") + b"\n"


def start_order(  # noqa: PLR0913 - all that a program is started with, by name
    arguments: "list[str]",
    environment: "dict[str, str]",
    *,
    without_names: "list[str]",
    without_prefixes: "list[str]",
    folder: str,
    needs_folder: bool,
    grace_s: float,
) -> bytes:
    """The order to start a program; it is asked to end ``grace_s`` seconds before it is killed.

    ``environment`` is added to the supervisor's own, out of which the names and prefixes are
    taken first. The program runs in ``folder``, or where the supervisor does if that is not there
    and not needed. Bytes that are no text survive the way, whatever the encodings at both ends are.
    """
    order = {
        "arguments": [_as_text(argument) for argument in arguments],
        "environment": {_as_text(key): _as_text(value) for key, value in environment.items()},
        "without_names": without_names,
        "without_prefixes": without_prefixes,
        "folder": _as_text(folder),
        "needs_folder": needs_folder,
        "grace_s": grace_s,
    }
    return b"start " + json.dumps(order).encode("ascii") + b"\n"


def sweep_orders(sweep: str, scratch: str) -> bytes:
    """The orders to kill processes whose marker begins so, remove that folder, and nothing else."""
    order = prepare_order(scope="", devices=[], sweep=sweep, scratch=scratch, taken_over=True)
    return order + b"kill\n"


def kill_marked(prefix: str) -> "list[int]":
    """Kill all processes of this machine whose marker begins so, and say which ones are left.

    Repeats, since a process may have been started by one that was killed after it was looked for.
    """
    deadline = time.monotonic() + KILL_LIMIT_S
    entry = "{}={}".format(MARKER, prefix).encode()  # noqa: UP032 - as short as it gets
    while True:
        with_acceptance = list(_marked(entry))
        if not with_acceptance or time.monotonic() > deadline:
            return with_acceptance
        for process in with_acceptance:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_S)


class Supervisor:
    """Starts the program when it is told to, and ends all that came of it when it is told to."""

    def __init__(self, lease_s: float) -> None:
        """Take signals from now on, and orders that come less than ``lease_s`` apart (0: any)."""
        self._lease_s = lease_s
        self._heard = self._told = time.monotonic()
        self._input = b""
        self._listening = True
        self._ending = False
        self._hurry = False
        self._has_children = False
        self._program = None  # type: subprocess.Popen[bytes] | None
        self._exit_code = None  # type: int | None
        self._grace_s = 0.0
        self._sweep = None  # type: str | None
        self._scratch = None  # type: str | None
        self._scratch_lock = None  # type: int | None
        self._held = []  # type: list[socket.socket]
        self._wake_up, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        signal.set_wakeup_fd(wake_up)
        signal.signal(signal.SIGCHLD, _nothing)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        _report(ready=sys.version.split()[0])

    def run(self) -> int:
        """Follow the orders to the end, and return the exit code that tells the program's."""
        self._wait(lambda: self._ending)
        if self._program is not None:
            self._end()
        # Its own descendants first: what they are doing for other nodes ends with them.
        left = set(_descendants(os.getpid())) if self._has_children else set()
        if self._sweep is not None:
            left.update(kill_marked(self._sweep))
        if left:
            _report(left=sorted(left))
        for held in self._held:
            held.close()
        # The run is over here; what it has written may take long to remove.
        _report(clean=not left)
        self._release()
        if self._program is not None:
            self._program.returncode = self._exit_code  # it has been waited for here
        if self._program is None:
            return 0
        if self._exit_code is None:
            return _NOT_STARTED
        return self._exit_code if self._exit_code >= 0 else _SIGNALLED - self._exit_code

    def _end(self) -> None:
        """Ask at first, then kill.

        The program itself is asked before the others, because it may know how to end them.
        """
        deadline = time.monotonic() + self._grace_s
        self._signal_program(signal.SIGTERM)
        self._wait(lambda: self._hurry or self._exit_code is not None, deadline)
        if not self._hurry and time.monotonic() < deadline:
            self._signal_descendants(signal.SIGTERM)
            self._wait(lambda: self._hurry or not self._has_children, deadline)
        deadline = time.monotonic() + KILL_LIMIT_S
        # Without a child there is no descendant either: those of a child that ended are children.
        while self._has_children and time.monotonic() < deadline:
            self._signal_program(signal.SIGKILL)
            self._signal_descendants(signal.SIGKILL)
            self._wait(lambda: not self._has_children, time.monotonic() + _POLL_S)

    def _wait(self, done: "Callable[[], bool]", deadline: float = float("inf")) -> None:
        """Take orders, and the exit codes of children, until it is done or too late."""
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            sources = [self._wake_up, 0] if self._listening else [self._wake_up]
            ready = select.select(sources, [], [], min(left_s, HEARTBEAT_INTERVAL_S))[0]
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            if 0 in ready:
                self._take_orders()
            self._reap()
            if self._lease_s:
                self._keep_lease()

    def _keep_lease(self) -> None:
        now = time.monotonic()
        if self._listening and now - self._heard > self._lease_s:
            _report(deserted=True)
            self._be_alone()
        if now - self._told >= HEARTBEAT_INTERVAL_S:
            self._told = now
            _report(alive=True)

    def _be_alone(self) -> None:
        """Nobody gives orders any more."""
        self._listening = False
        self._ending = self._hurry = True

    def _take_orders(self) -> None:
        received = os.read(0, 65536)
        if not received:
            self._be_alone()
            return
        self._heard = time.monotonic()
        lines = (self._input + received).split(b"\n")
        self._input = lines.pop()
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"prepare":
                self._prepare(json.loads(rest.decode("ascii")))
            if word == b"release":
                self._release()
            if word == b"start":
                self._start(json.loads(rest.decode("ascii")))
            self._ending = self._ending or word in (b"end", b"kill")
            self._hurry = self._hurry or word == b"kill"

    def _prepare(self, order: "dict[str, object]") -> None:
        devices = order["devices"]
        assert isinstance(devices, list)  # noqa: S101 - what prepare_order() has put there
        try:
            # A machine of two names would wait for itself for ever.
            run = "run-" + str(order["sweep"]).split(".")[0]
            if devices and not self._lock(lock_name(str(order["scope"]), run)):
                self._release()
                _report(cannot_prepare="another host of this run is the same machine; name it once")
                return
            for device in devices:
                if not self._lock(lock_name(str(order["scope"]), device)):
                    self._release()
                    _report(busy=device)
                    return
            # Bound, but without listening: the kernel gives the port to nobody who asks for any,
            # and to a server that asks for this one with SO_REUSEADDR, as such servers do.
            holder = socket.socket(socket.AF_INET6 if order["ipv6"] else socket.AF_INET)
            self._held.append(holder)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", 0))
            if order["scratch"] is not None:
                scratch = os.fsdecode(_as_bytes(str(order["scratch"])))
                if not order["taken_over"]:
                    self._scratch_lock = _made_scratch(scratch)
                self._scratch = scratch
        except OSError as error:
            _report(cannot_prepare=str(error))
            return
        self._sweep = str(order["sweep"])
        _report(prepared=True, port=holder.getsockname()[1])

    def _release(self) -> None:
        if self._scratch is not None:
            _remove(self._scratch)
            self._scratch = None
        if self._scratch_lock is not None:
            os.close(self._scratch_lock)
            self._scratch_lock = None
        for held in self._held:
            held.close()
        self._held = []

    def _lock(self, name: str) -> bool:
        """Take a lock of this machine, which ends with this process; whether it was free."""
        if not sys.platform.startswith("linux"):
            return True  # no other system has names that end with their process
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(name)
        except OSError as error:
            holder.close()
            if error.errno == errno.EADDRINUSE:
                return False
            raise
        self._held.append(holder)
        return True

    def _start(self, order: "dict[str, object]") -> None:
        arguments, environment, folder = order["arguments"], order["environment"], order["folder"]
        names, prefixes = order["without_names"], order["without_prefixes"]
        assert isinstance(arguments, list)  # noqa: S101 - what start_order() has put there
        assert isinstance(environment, dict)  # noqa: S101 - as above
        assert isinstance(names, list)  # noqa: S101 - as above
        assert isinstance(prefixes, list)  # noqa: S101 - as above
        self._grace_s = float(str(order["grace_s"]))
        whole = {
            key: value
            for key, value in os.environb.items()
            if key.decode("latin-1") not in names
            and not key.decode("latin-1").startswith(tuple(prefixes))
        }
        whole.update({_as_bytes(key): _as_bytes(value) for key, value in environment.items()})
        place = _as_bytes(str(folder))
        is_there = os.path.isdir(place)  # noqa: PTH112 - as above
        if order["needs_folder"] and not is_there:
            _report(cannot_start=None)
            return
        try:
            self._program = subprocess.Popen(  # noqa: S603 - to start it is the purpose
                [_as_bytes(argument) for argument in arguments],
                cwd=place if is_there else None,
                env=whole,
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads here
            )
        except OSError as error:
            _report(cannot_start=os.strerror(error.errno or 0))
        else:
            self._has_children = True
            _report(started=self._program.pid)

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
                _report(ended=self._exit_code)

    def _signal_program(self, number: int) -> None:
        """Signal the program's process group, whose number is its own until it is reaped."""
        if self._program is not None and self._exit_code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, number)

    def _signal_descendants(self, number: int) -> None:
        for process in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def _on_signal(self, number: int, _frame: object) -> None:
        _report(told=signal.Signals(number).name)
        self._hurry = self._ending
        self._ending = True


def _nothing(_number: int, _frame: object) -> None:
    """A signal without a handler would not wake up a waiting process."""


def _made_scratch(folder: str) -> int:
    """Make a run's folder on this host, locked while this process lives, which the lock is of.

    What runs have left whose supervisors are gone is removed first.

    Raises:
        OSError: It is there already, perhaps somebody else's, or cannot be made.
    """
    parent, name = os.path.split(folder)
    with contextlib.suppress(OSError):
        for other in os.listdir(parent):  # noqa: PTH208 - importing pathlib takes long
            if _SCRATCH.match(other) and other != name:
                _remove_stale(os.path.join(parent, other))  # noqa: PTH118 - as above
    os.mkdir(folder, 0o700)  # noqa: PTH102 - as above
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _remove_stale(folder: str) -> None:
    """Remove a scratch folder of this user's that nobody has locked."""
    with contextlib.suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(lock)
            # One that was made a moment ago may not be locked yet.
            if status.st_uid == os.getuid() and time.time() - status.st_ctime > _STALE_S:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
        finally:
            os.close(lock)


def _remove(folder: str) -> None:
    """Remove a folder of ours with all that is in it, unless something is mounted there."""
    mounted = _mounted_below(folder)
    if mounted:
        _report(kept="{} is left: {} is mounted there".format(folder, ", ".join(mounted)))
        return
    # The system's own tools know folders of any depth, and folders that may not be written.
    nothing = subprocess.DEVNULL
    for command in (["chmod", "-R", "u+rwx", "--", folder], ["rm", "-rf", "--", folder]):
        with contextlib.suppress(OSError):
            subprocess.call(command, stdin=nothing, stdout=nothing, stderr=nothing)  # noqa: S603


def _mounted_below(folder: str) -> "list[str]":
    """What is mounted at a folder or below it: to remove that would remove what lies elsewhere."""
    points = []
    with contextlib.suppress(OSError), open(_PROC + "/self/mountinfo", "rb") as file:  # noqa: PTH123
        for line in file:
            # Blanks and the like are written as their numbers.
            parts = re.split(rb"\\([0-7]{3})", line.split()[4])
            parts[1::2] = [bytes([int(number, 8)]) for number in parts[1::2]]
            points.append(os.fsdecode(b"".join(parts)))
    real = os.path.realpath(folder)
    return [point for point in points if point == real or point.startswith(real + "/")]


def _become_reaper() -> None:
    """Adopt the orphans among the descendants, where the system knows how."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)


def _die_with_parent() -> None:
    """Have the kernel end the program when its supervisor is killed and nobody is left to look."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _control(operation: int, value: int) -> None:
    """Ask the system for something about this process, where it knows how."""
    with contextlib.suppress(OSError, AttributeError):
        if _LIBRARY is not None:
            _LIBRARY.prctl(operation, value, 0, 0, 0)


def _report(**message: object) -> None:
    # Whoever was to read it may be gone. What a login shell has printed may go on in this line.
    with contextlib.suppress(OSError):
        os.write(1, b"\n" + json.dumps(message).encode("ascii") + b"\n")


def _descendants(process: int) -> "list[int]":
    """All processes below this one; none where the system does not tell."""
    children = {}  # type: dict[int, list[int]]
    for number, stat in _read_all("stat"):
        # The program's name, in parentheses, may hold anything, parentheses too.
        parent = int(stat.rpartition(b")")[2].split()[1])
        children.setdefault(parent, []).append(number)
    found = []  # type: list[int]
    new = children.get(process, [])
    while new:
        found += new
        new = [below for number in new for below in children.get(number, [])]
    return found


def _marked(start: bytes) -> "Iterator[int]":
    """Processes with an entry in their environment that begins so."""
    for number, environment in _read_all("environ"):
        if number != os.getpid() and any(
            entry.startswith(start) for entry in environment.split(b"\0")
        ):
            yield number


def _read_all(name: str) -> "Iterator[tuple[int, bytes]]":
    """One file of each process of the machine, without those that may not be read."""
    try:
        numbers = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - as below
    except OSError:
        return
    for number in numbers:
        # The process may be gone by now, or be another user's.
        with contextlib.suppress(OSError):
            # To import pathlib takes as long as all of this.
            with open(f"{_PROC}/{number}/{name}", "rb") as file:  # noqa: PTH123 - as said
                content = file.read()
            if content:
                yield int(number), content


def _as_text(text: str) -> str:
    return os.fsencode(text).decode("latin-1")


def _as_bytes(text: str) -> bytes:
    return text.encode("latin-1")


if __name__ == "__main__":
    _become_reaper()
    sys.exit(Supervisor(float(sys.argv[1])).run())

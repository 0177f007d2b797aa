"""Hosts are leased to whole gangs, to one at a time, and freed when a process dies."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.model.errors import BrokenError

# Leases what its arguments say, tells each step in a line, and releases at the next line of its
# input. It ends by itself if a test hangs.
PARTY = """
import signal, subprocess, sys
from pathlib import Path
from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool

signal.alarm(120)
folder, names, nodes, devices, exclusive, child = sys.argv[1:]

def tell(*words):
    print(*words, flush=True)

pool = HostPool(Path(folder))
wanted = parse_hosts(names, place="test")
with pool.leased(
    wanted,
    nodes=int(nodes),
    devices=int(devices),
    exclusive=exclusive == "exclusive",
    purpose="case",
    on_wait=lambda text: tell("waits", text),
) as leases:
    if child:
        tell("child", subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL).pid)
    shown = (f"{lease.host.name}={','.join(map(str, lease.device_ids))}" for lease in leases)
    tell("got", *shown)
    sys.stdin.readline()
tell("over")
"""

# Leases at random until its input ends; a line when it has something, a line before it gives back.
CROWD = """
import random, signal, sys, time
from pathlib import Path
from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool

signal.alarm(120)
folder, log, names, times, seed, *how = sys.argv[1:]
pool = HostPool(Path(folder))
chance = random.Random(int(seed))
wanted = parse_hosts(names, place="test")
with open(log, "a", buffering=1) as lines:
    for turn in range(int(times)):
        exclusive = chance.random() < 0.7
        nodes = len(wanted) if how else chance.randint(1, len(wanted))
        with pool.leased(wanted, nodes=nodes, devices=3, exclusive=exclusive) as leases:
            for lease in leases:
                kind = "exclusive" if exclusive else "shared"
                ids = " ".join(map(str, lease.device_ids))
                lines.write(f"got {turn} {time.monotonic_ns()} {kind} {lease.host.name} {ids}\\n")
            time.sleep(chance.random() / 200)
            lines.write(f"over {turn} {time.monotonic_ns()}\\n")
"""

# Kills a copy of itself in front of its first, its second, … operation on files of the pool, while
# it has leased one host; after each the other hosts have to be free and that one must not be.
KILLED = """
import os, signal, sys
from pathlib import Path
from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool

signal.alarm(120)
folder = sys.argv[1]
pool = HostPool(Path(folder))
a, b, c = parse_hosts("a:8,b:8,c:8", place="test")
left = None

class Waits(Exception): pass

def waits(text):
    raise Waits(text)

def hook(event, arguments):
    global left
    if left is None or event not in {"os.mkdir", "os.chmod", "open", "fcntl.flock"}:
        return
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
with pool.leased([c], nodes=1, devices=8):
    for step in range(1000):
        child = os.fork()
        if child == 0:
            left = step
            with pool.leased([a, b], nodes=2, devices=8):
                pass
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        with pool.leased([a, b], nodes=2, devices=8, on_wait=waits):
            pass
        try:
            with pool.leased([c], nodes=1, devices=8, on_wait=waits):
                raise SystemExit("a held host was given away")
        except Waits:
            pass
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, status
print(step)
"""


def hosts_of(text):
    return parse_hosts(text, place="test")


class Party:
    """A process of its own that leases hosts."""

    def __init__(self, folder, names, nodes, devices, **how):
        exclusive = "exclusive" if how.get("exclusive", True) else "shared"
        child = "child" if how.get("child") else ""
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PARTY,
                folder,
                names,
                str(nodes),
                str(devices),
                exclusive,
                child,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def says(self, word):
        """The rest of the next line, which has to begin with this word."""
        said, _, rest = self.line().partition(" ")
        assert said == word, (said, rest)
        return rest

    def release(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.says("over")
        assert self.process.wait() == 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pool"


@pytest.fixture
def party(folder):
    parties = []

    def start(names, nodes=1, devices=8, **how):
        parties.append(Party(folder, names, nodes, devices, **how))
        return parties[-1]

    yield start
    for each in parties:
        each.close()


def refuse(text):
    raise AssertionError(text)


def all_free(folder, names):
    """Whether nobody holds any of these hosts."""
    hosts = hosts_of(names)
    with HostPool(folder).leased(hosts, nodes=len(hosts), devices=1, on_wait=refuse) as leases:
        return len(leases) == len(hosts)


def overlaps(logs, ends):
    """Uses of a device that meet, by the lines of a crowd; ``ends`` is when one was killed."""
    uses = defaultdict(list)
    for log in logs:
        open_uses = []
        lines = log.read_text(encoding="utf-8").splitlines()
        for line in [*lines, f"over - {ends.get(log, 0)}"]:
            word, _, moment, *rest = line.split()
            if word == "got":
                kind, host, *ids = rest
                devices = range(8) if kind == "exclusive" else map(int, ids)
                open_uses.append((int(moment), [(host, device) for device in devices]))
                continue
            for begin, devices_used in open_uses:
                for device in devices_used:
                    uses[device].append((begin, int(moment), log.name))
            open_uses = []
    found = []
    for device, intervals in uses.items():
        intervals.sort()
        found += [
            (device, first, second) for first, second in pairwise(intervals) if second[0] < first[1]
        ]
    assert uses
    return found


def test_an_exclusive_lease_takes_the_first_devices_of_the_first_hosts(folder):
    with HostPool(folder).leased(hosts_of("a:8,b:4,c:8"), nodes=2, devices=4) as leases:
        assert [(lease.host.name, lease.device_ids) for lease in leases] == [
            ("a", (0, 1, 2, 3)),
            ("b", (0, 1, 2, 3)),
        ]


def test_shared_hosts_give_the_lowest_free_devices(folder):
    pool = HostPool(folder)
    hosts = hosts_of("a:8")
    with (
        pool.leased(hosts, nodes=1, devices=2, exclusive=False) as first,
        pool.leased(hosts, nodes=1, devices=3, exclusive=False) as second,
    ):
        assert [lease.device_ids for lease in (*first, *second)] == [(0, 1), (2, 3, 4)]


def test_devices_that_are_given_back_are_given_out_again(folder, party):
    first, second = (party("a:4", 1, 1, exclusive=False) for _ in range(2))
    assert sorted((first.says("got"), second.says("got"))) == ["a=0", "a=1"]
    first.release()
    second.release()
    with HostPool(folder).leased(hosts_of("a:4"), nodes=1, devices=2, exclusive=False) as leases:
        assert leases[0].device_ids == (0, 1)


def test_a_shared_host_that_is_full_is_waited_for(party):
    first = party("a:4", 1, 3, exclusive=False)
    assert first.says("got") == "a=0,1,2"
    second = party("a:4", 1, 2, exclusive=False)
    second.says("waits")
    first.release()
    assert second.says("got") == "a=0,1"


def test_who_wants_a_host_alone_waits_for_those_who_share_it(party):
    first = party("a:4", 1, 1, exclusive=False)
    first.says("got")
    second = party("a:4", 1, 1)
    second.says("waits")
    first.release()
    second.says("got")


def test_hosts_without_a_count_have_as_many_devices_as_are_wanted(folder):
    pool = HostPool(folder)
    hosts = hosts_of("a")
    with (
        pool.leased(hosts, nodes=1, devices=2, exclusive=False),
        pool.leased(hosts, nodes=1, devices=64, exclusive=False) as leases,
    ):
        assert leases[0].device_ids == tuple(range(2, 66))


def test_a_host_is_one_host_however_its_address_is_written(party):
    party("user@GPU1").says("got")
    assert "gpu1 held by process" in party("gpu1").says("waits")


def test_who_waits_is_told_once_what_for(party):
    holder = party("a,b")
    holder.says("got")
    waiting = party("a,b", 2)
    told = waiting.says("waits")
    assert "waiting for 2 of 2 hosts with 8 device(s): a held by process" in told
    assert f"process {holder.process.pid} for case since 2" in told
    behind = party("a,b").says("waits")
    assert f"process {waiting.process.pid} for case since 2" in behind
    assert "waits before it" in behind
    holder.release()
    assert waiting.says("got") == "a=0,1,2,3,4,5,6,7 b=0,1,2,3,4,5,6,7"


def test_a_large_gang_is_not_starved_by_small_ones(party):
    first = party("h[1-4]")
    first.says("got")
    gang = party("h[1-4]", 4)
    gang.says("waits")
    small = [party("h[1-4]") for _ in range(3)]
    for each in small:
        assert f"process {gang.process.pid}" in each.says("waits")
    first.release()
    gang.says("got")
    late = party("h[1-4]")
    late.says("waits")
    gang.release()
    assert len({each.says("got") for each in (*small, late)}) == 4


def test_who_wants_other_hosts_goes_ahead_of_those_who_wait(party):
    party("a").says("got")
    party("a,b", 2).says("waits")
    assert party("c,d").says("got").startswith("c=")


def test_a_killed_holder_frees_its_hosts_though_its_child_lives(folder, party):
    holder = party("a,b", 2, child=True)
    child = int(holder.says("child"))
    holder.says("got")
    waiting = party("a,b", 2)
    waiting.says("waits")
    holder.kill()
    try:
        waiting.says("got")
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
    waiting.release()
    assert all_free(folder, "a,b")


def test_a_killed_waiter_lets_others_pass(folder, party):
    holder = party("a")
    holder.says("got")
    gang = party("a,b", 2)
    gang.says("waits")
    behind = party("b")
    behind.says("waits")
    gang.kill()
    behind.says("got")
    behind.release()
    holder.release()
    assert all_free(folder, "a,b")


def test_a_lease_ends_when_its_block_raises(folder):
    with (
        pytest.raises(KeyboardInterrupt),
        HostPool(folder).leased(hosts_of("a"), nodes=1, devices=1),
    ):
        raise KeyboardInterrupt
    assert all_free(folder, "a")


def test_who_gives_up_waiting_leaves_the_line(folder, party):
    holder = party("a")
    holder.says("got")

    def give_up(_):
        raise TimeoutError

    with (
        pytest.raises(TimeoutError),
        HostPool(folder).leased(hosts_of("a,b"), nodes=2, devices=8, on_wait=give_up),
    ):
        pass
    party("b").says("got")


def test_who_has_waited_long_enough_is_told_who_holds_the_hosts(folder, party):
    holder = party("a")
    holder.says("got")
    pool = HostPool(folder)
    with (
        pytest.raises(BrokenError) as raised,
        pool.leased(hosts_of("a"), nodes=1, devices=8, limit_s=0.1),
    ):
        pass
    told = str(raised.value)
    assert told.startswith("no hosts after 0.1 s: ")
    assert f"a held by process {holder.process.pid} for case since 2" in told
    assert f"started in {Path.cwd()}; --dlperf-wait-limit " in told
    # Who has given up is in nobody's way.
    behind = party("a")
    behind.says("waits")
    holder.release()
    behind.says("got")


@pytest.mark.parametrize("content", [b"", bytes(range(256)), b"\n" * 100])
def test_a_lock_whose_holder_is_not_legible_holds_all_the_same(folder, party, content):
    holder = party("a")
    holder.says("got")
    (folder / "a.lock").write_bytes(content)
    waiting = party("a,b", 2)
    assert "a held by " in waiting.says("waits")
    (folder / "turn").write_bytes(content)
    behind = party("a")
    assert behind.says("waits").partition(": ")[2].strip()
    holder.release()
    waiting.says("got")


def test_a_kill_in_front_of_any_file_operation_leaves_no_host_behind(folder):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8


def crowd(folder, log, names, times, *how):
    """Lease again and again: random numbers of the hosts, or with ``all`` each time all of them."""
    log.touch()
    seed = log.stem.lstrip("h")
    arguments = [str(folder), str(log), names, str(times), seed, *how]
    return subprocess.Popen([sys.executable, "-c", CROWD, *arguments])


@pytest.mark.slow
def test_no_device_is_leased_twice_among_eight_processes(folder, tmp_path):
    logs = [tmp_path / f"{number}.log" for number in range(8)]
    # Every other one stands for a session that knows fewer of the hosts.
    processes = [
        crowd(folder, log, "h[1-4]:8" if number % 2 else "h[2-3]:8", 6)
        for number, log in enumerate(logs)
    ]
    assert [process.wait() for process in processes] == [0] * 8
    assert overlaps(logs, {}) == []
    for log in logs:
        turns = defaultdict(set)
        for line in log.read_text(encoding="utf-8").splitlines():
            word, turn, moment, *_ = line.split()
            turns[f"{word} {turn}"].add(moment)
        assert len(turns) == 12
    assert all_free(folder, "h[1-4]")


@pytest.mark.slow
def test_none_of_three_large_gangs_is_starved_by_each_other_or_by_small_ones(folder, tmp_path):
    gangs = [crowd(folder, tmp_path / f"{number}.log", "h[1-4]:8", 3, "all") for number in range(3)]
    small = [
        crowd(folder, tmp_path / f"h{host}.log", f"h{host}:8", 1_000_000) for host in range(1, 5)
    ]
    try:
        assert [gang.wait() for gang in gangs] == [0, 0, 0]
        assert [process.poll() for process in small] == [None] * 4
    finally:
        for process in small:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_no_device_is_leased_twice_while_processes_are_killed_at_random(folder, tmp_path):
    """Each is killed after so many more leases, not seconds: a busy machine changes nothing."""
    chance = random.Random(7)  # noqa: S311 - no secret
    processes = {}
    running = []
    ends = {}
    deadline = time.monotonic() + 100

    def leases(logs):
        """The log of each lease that was given."""
        counts = ((log, log.read_text(encoding="utf-8").count("got")) for log in logs)
        return [log for log, count in counts for _ in range(count)]

    try:
        for kill in range(24):
            while len(running) < 4:
                log = tmp_path / f"{len(processes)}.log"
                processes[log] = crowd(folder, log, "h[1-3]:8", 1_000_000)
                log.touch()
                running.append(log)
            wanted = len(leases(processes)) + chance.randint(1, 12)
            while len(leases(processes)) < wanted or not leases(running):
                assert time.monotonic() < deadline, "nobody is given anything"
                time.sleep(0.01)
            time.sleep(chance.random() / 50)
            # Every other one is of those that had a turn, the rest may still be starting.
            log = chance.choice(leases(running) if kill % 2 else running)
            running.remove(log)
            ends[log] = time.monotonic_ns()
            processes[log].send_signal(signal.SIGKILL if kill % 4 else signal.SIGINT)
    finally:
        for log in running:
            ends[log] = time.monotonic_ns()
            processes[log].kill()
        for process in processes.values():
            process.wait()
    logs = list(processes)
    assert len(set(leases(logs))) >= 12
    assert overlaps(logs, ends) == []

    assert all_free(folder, "h[1-3]:8")


def test_the_folder_is_for_its_user_alone(folder):
    with HostPool(folder).leased(hosts_of("a"), nodes=1, devices=1):
        assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with HostPool(folder).leased(hosts_of("a"), nodes=1, devices=1):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_folder_of_the_user_is_refused(folder, tmp_path, kind):
    if kind == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.touch()
    with (
        pytest.raises(BrokenError, match=str(folder)),
        HostPool(folder).leased(hosts_of("a"), nodes=1, devices=1),
    ):
        pass

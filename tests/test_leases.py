"""Hosts are leased to whole gangs, to one at a time, and freed when a process dies."""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from other_users import as_other, needs_root, shared_folder

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

with HostPool(Path(folder)).leased(
    parse_hosts(names, place="test"),
    nodes=int(nodes),
    devices=int(devices),
    exclusive=bool(exclusive),
    purpose="case",
    on_wait=lambda text: tell("waits", text),
) as leases:
    if child:
        tell("child", subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL).pid)
    tell("got", *(f"{one.host.name}={','.join(map(str, one.device_ids))}" for one in leases))
    sys.stdin.readline()
tell("over")
"""

# Leases again and again, random numbers of the hosts or all of them, alone or shared: a line of the
# devices that nobody else has meanwhile, a line before it gives back.
CROWD = """
import random, signal, sys, time
from pathlib import Path
from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool

signal.alarm(120)
folder, log, names, times, *how = sys.argv[1:]
pool = HostPool(Path(folder))
chance = random.Random(log)
wanted = parse_hosts(names, place="test")
with open(log, "a", buffering=1) as lines:
    for turn in range(int(times)):
        nodes = len(wanted) if how else chance.randint(1, len(wanted))
        exclusive = chance.random() < 0.7
        with pool.leased(wanted, nodes=nodes, devices=3, exclusive=exclusive) as leases:
            own = {one.host: range(8) if exclusive else one.device_ids for one in leases}
            names = (f"{host.name}.{device}" for host in own for device in own[host])
            lines.write(f"{time.monotonic_ns()} {' '.join(names)}\\n")
            time.sleep(chance.random() / 200)
            lines.write(f"{time.monotonic_ns()}\\n")
"""


def hosts_of(text):
    return parse_hosts(text, place="test")


class Party:
    """A process of its own that leases hosts."""

    def __init__(self, folder, names, *how):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARTY, folder, names, *how],
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

    def start(names, nodes=1, devices=1, *, exclusive=True, child=False):
        how = (str(nodes), str(devices), "exclusive" * exclusive, "child" * child)
        parties.append(Party(folder, names, *how))
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


def overlaps(logs):
    """Uses of a device that meet, by the lines of a crowd."""
    uses = defaultdict(list)
    for log in logs:
        lines = log.read_text(encoding="utf-8").splitlines()
        for got, over in zip(lines[::2], lines[1::2], strict=True):
            begin, *devices = got.split()
            for device in devices:
                uses[device].append((int(begin), int(over)))
    assert uses
    return [
        (device, first, second)
        for device, intervals in uses.items()
        for first, second in pairwise(sorted(intervals))
        if second[0] < first[1]
    ]


def test_a_lease_takes_the_first_hosts_that_are_free(folder, party):
    party("b").says("got")
    with HostPool(folder).leased(hosts_of("a:8,b:4,c:8,d"), nodes=2, devices=4) as leases:
        assert [(one.host.name, one.device_ids) for one in leases] == [
            ("a", (0, 1, 2, 3)),
            ("c", (0, 1, 2, 3)),
        ]


@pytest.mark.parametrize("host", ["a:4", "a"])
def test_a_shared_host_gives_the_lowest_devices_that_are_free(folder, host):
    def shared(devices):
        return HostPool(folder).leased(hosts_of(host), nodes=1, devices=devices, exclusive=False)

    with shared(1) as first:
        with shared(2) as second:
            pass
        with shared(3) as third:
            assert [one.device_ids for one in (*first, *second, *third)] == [
                (0,),
                (1, 2),
                (1, 2, 3),
            ]


@pytest.mark.parametrize("exclusive", [True, False])
def test_who_wants_a_host_alone_and_who_shares_it_wait_for_each_other(party, exclusive):
    first = party("a:4", exclusive=exclusive)
    first.says("got")
    second = party("a:4", exclusive=not exclusive)
    second.says("waits")
    first.release()
    assert second.says("got") == "a=0"


def test_a_host_is_one_host_however_its_address_is_written(party):
    party("user@GPU1").says("got")
    assert "gpu1 held by process" in party("gpu1").says("waits")


def test_who_waits_is_told_once_what_for(party):
    holder = party("a,b")
    holder.says("got")
    waiting = party("a,b", 2)
    told = waiting.says("waits")
    assert "waiting for 2 of 2 hosts with 1 device(s): a held by process" in told
    assert f"process {holder.process.pid} for case since 2" in told
    behind = party("a,b").says("waits")
    assert f"process {waiting.process.pid} for case since 2" in behind
    assert "waits before it" in behind
    holder.release()
    assert waiting.says("got") == "a=0 b=0"


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
    assert party("c,d").says("got") == "c=0"


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


def test_who_has_waited_long_enough_is_told_who_holds_the_hosts(folder, party):
    holder = party("a")
    holder.says("got")
    pool = HostPool(folder)
    with (
        pytest.raises(BrokenError) as raised,
        pool.leased(hosts_of("a"), nodes=1, devices=1, limit_s=0.1),
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


def crowd(folder, log, names, times, *how):
    """Lease again and again: random numbers of the hosts, or with ``all`` each time all of them."""
    return subprocess.Popen([sys.executable, "-c", CROWD, folder, log, names, str(times), *how])


@pytest.mark.slow
def test_no_device_is_leased_twice_and_no_large_gang_is_starved(folder, tmp_path):
    logs = [tmp_path / f"{number}.log" for number in range(6)]
    # Every other one stands for a session that knows fewer of the hosts.
    processes = [
        crowd(folder, log, "h[1-4]:8" if number % 2 else "h[2-3]:8", 6, *["all"] * (number > 3))
        for number, log in enumerate(logs)
    ]
    small = [crowd(folder, tmp_path / f"h{host}", f"h{host}:8", 1_000_000) for host in range(1, 5)]
    try:
        assert [process.wait() for process in processes] == [0] * len(logs)
        assert [process.poll() for process in small] == [None] * len(small)
    finally:
        for process in small:
            process.kill()
            process.wait()
    assert overlaps(logs) == []
    assert all_free(folder, "h[1-4]")


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


@needs_root
def test_a_folder_that_another_user_has_made_in_its_place_is_refused(monkeypatch):
    with shared_folder() as temporary:
        monkeypatch.setenv("TMPDIR", str(temporary))
        taken = temporary / f"pytest-dlperf-hosts-{os.geteuid()}"
        as_other(taken.mkdir)
        with (
            pytest.raises(BrokenError, match=f"hosts cannot be leased: {taken}"),
            HostPool().leased(hosts_of("a"), nodes=1, devices=1),
        ):
            pass

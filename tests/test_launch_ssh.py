"""Cases that are launched over ssh, on hosts with a real sshd each."""

import os
import re
import signal
from collections import Counter

import pytest
from clusters.processes import wait_until
from sessions import in_background
from trainers import TinySystem

RECORDED = ("--dlperf-repeats", "1", "--dlperf-create-baselines")


def test_auto_is_one_worker_per_host_and_each_case_is_launched_once(suite, over_ssh):
    """Also the single device that speedups are taken over, which was not selected."""
    tiny = TinySystem(suite, topologies=["1n1g", "1n2g", "2n1g", "4n1g"])
    tiny.behave("0.01 work-0.2")

    result, results = suite.judge(
        "-k", "tiny and (1n2g or 2n1g or 4n1g)", "-n", "auto", *RECORDED, cluster="local"
    )

    assert result.ret == 0
    result.stdout.fnmatch_lines([f"{len(over_ssh.names)} workers*"])
    assert Counter(line.split()[0] for line in tiny.starts()) == {
        "1n1g": 1,
        "1n2g": 1,
        "2n1g": 2,
        "4n1g": 4,
    }
    assert tiny.overlaps() == []
    speedups = {case["topology"]: case["metrics"]["speedup"]["median"] for case in results["cases"]}
    assert speedups == {
        "1n2g": pytest.approx(2 * 2**0.5, rel=1e-4),
        "2n1g": pytest.approx(2 * 2**0.5, rel=1e-4),
        "4n1g": pytest.approx(8, rel=1e-4),
    }


def test_the_largest_gangs_are_launched_first(suite, over_ssh):
    tiny = TinySystem(suite, topologies=["1n1g", "2n1g", "4n1g", "3n1g"])
    suite.run("-k", "tiny", *RECORDED)
    launched = list(dict.fromkeys(line.split()[0] for line in tiny.starts()))
    assert launched == ["4n1g", "3n1g", "2n1g", "1n1g"]
    assert {line.split()[3] for line in tiny.hosts()} == set(over_ssh.names)


def test_a_worker_that_is_killed_frees_its_hosts(suite, over_ssh):
    """Its trainings would wait for ever, and the next gang needs three of the four hosts."""
    tiny = TinySystem(suite, topologies=["3n1g", "4n1g"])
    tiny.behave("0.01 wait")

    with in_background(suite, "-k", "throughput and tiny", "-n", "1", *RECORDED) as session:
        session.wait_until(lambda: len(tiny.starts()) == 4, what="the first run")
        locks = list((suite.path / "tmp" / f"pytest-dlperf-hosts-{os.geteuid()}").glob("*.lock"))
        assert {lock.stem for lock in locks} == set(over_ssh.names)
        texts = [lock.read_text(encoding="utf-8") for lock in locks]
        [holder] = {pid for text in texts for pid in re.findall("process ([0-9]+)", text)}
        os.kill(int(holder), signal.SIGKILL)
        session.wait_until(lambda: len(tiny.starts()) == 7, what="the next run")
        tiny.go()
        assert session.result() == 1

    assert tiny.overlaps() == []
    assert "crashed while running" in session.output
    assert "1 failed, 1 passed" in session.output
    # What outlives the worker looks whether anything is left on its hosts.
    wait_until(lambda: not over_ssh.processes(), what="the end of all")

"""Sessions that want the same hosts take turns: those of one user, and those from elsewhere."""

from collections import Counter

import pytest
from sessions import in_background
from trainers import TinySystem

SELECTED = ("-k", "throughput and tiny", "--dlperf-repeats", "1")


@pytest.mark.usefixtures("over_ssh")
@pytest.mark.parametrize(
    "apart",
    [
        pytest.param(False, id="one machine", marks=pytest.mark.ci),
        pytest.param(True, id="two machines"),
    ],
)
def test_two_sessions_never_train_on_one_host_at_once(suite, *, apart):
    """From two machines, only the locks on the hosts themselves stand between them."""
    tiny = TinySystem(suite, topologies=["1n1g", "2n1g", "3n1g"])
    tiny.behave("0.01 wait work-0.2")
    (suite.path / "elsewhere").mkdir(mode=0o700)
    other = {"TMPDIR": str(suite.path / "elsewhere")} if apart else {}

    with in_background(suite, *SELECTED) as one:
        one.wait_until(lambda: len(tiny.starts()) == 3, what="the first run")
        with in_background(suite, *SELECTED, **other) as two:
            two.wait_until(lambda: "waiting" in two.output, what="the other to wait")
            assert len(tiny.starts()) == 3
            tiny.go()
            # Without a baseline each case is judged, and fails.
            assert [one.result(), two.result()] == [1, 1]

    assert tiny.overlaps() == []
    started = Counter(line.split()[0] for line in tiny.hosts())
    assert started == {"1n1g": 2, "2n1g": 4, "3n1g": 6}
    for session in (one, two):
        assert session.output.count("\nno_baseline: throughput\n") == 3
    told = "waiting: another run, from elsewhere, holds 127." if apart else " held by process "
    assert told in two.output


def test_a_session_waits_for_no_host_that_it_can_do_without(suite, over_ssh):
    tiny = TinySystem(suite, topologies=["2n1g"])
    tiny.behave("0.01 wait")
    with in_background(suite, *SELECTED) as one:
        one.wait_until(lambda: len(tiny.starts()) == 2, what="the first run")
        tiny.behave("0.01")
        two = suite.run(*SELECTED)
        tiny.go()
        one.result()
    assert tiny.overlaps() == []
    assert {line.split()[3] for line in tiny.hosts()} == set(over_ssh.names)
    assert "waiting" not in two.stdout.str()


@pytest.mark.ci
def test_sessions_of_one_allocation_take_turns(suite, slurm, monkeypatch):
    """They know nothing of each other; Slurm keeps the steps of one waiting."""
    tiny = TinySystem(suite, topologies=["3n1g"])
    tiny.behave("0.01 wait")
    (suite.path / "elsewhere").mkdir(mode=0o700)
    other = {"TMPDIR": str(suite.path / "elsewhere")}
    with slurm.allocation() as allocation:
        for name, value in allocation.environment.items():
            if name.startswith("SLURM"):
                monkeypatch.setenv(name, value)
        with in_background(suite, *SELECTED) as one:
            one.wait_until(lambda: len(tiny.starts()) == 3, what="the first run")
            with in_background(suite, *SELECTED, **other) as two:
                two.wait_until(lambda: "waiting" in two.output, what="its waiting")
                tiny.go()
                assert [one.result(), two.result()] == [1, 1]
    assert tiny.overlaps() == []
    assert Counter(line.split()[0] for line in tiny.hosts()) == {"3n1g": 6}
    assert "waiting: slurm has queued the run for node" in two.output


def test_workers_tell_why_their_controller_could_not_start(suite):
    (suite.path / "notes.txt").write_text("to do\n" * 100, encoding="utf-8")
    result = suite.run("-k", "throughput and tiny", "-o", "dlperf_history=notes.txt", "-n2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ini key dlperf_history: *notes.txt *; move it away, *"])

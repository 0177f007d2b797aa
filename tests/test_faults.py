"""Nothing of a run is left, on any node, however it ends: some cells of the matrix.

``benchmarks/faults.py`` runs all of them, as patiently as for users.
"""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from clusters.processes import wait_until
from clusters.requirements import command
from fault_matrix.cell import LIMIT_S, PROMISE_S, run_cell
from fault_matrix.faults import fault
from fault_matrix.places import MARKS, place_of
from fault_matrix.session import NODES, Session
from pythons import old_python

from pytest_dlperf.launch import gang, remote_call, remote_node, run
from pytest_dlperf.plugin import workers

pytestmark = [pytest.mark.faults, pytest.mark.slow]

FOLLOWED = " *"
"""What stands behind the name of a fault after which another session has to start at once."""

CELLS = {
    "local": (
        "hang",
        "Ctrl-C twice",
        "SIGKILL of pytest in the background, with a worker",
        "SIGKILL of a supervisor",
        "SIGKILL of a supervisor and of pytest *",
        "SIGSTOP of pytest",
    ),
    "ssh": (
        "SIGKILL of pytest *",
        "SIGKILL of all ssh, srun, mpirun and of pytest",
        "SIGKILL of a supervisor",
        "SIGSTOP of a supervisor",
    ),
    "network": ("network cut *", "network cut, SIGKILL of pytest"),
    "slurm": ("SIGKILL of pytest *", "SIGKILL of a supervisor", "scancel"),
    "sbatch": (
        "hang",
        "SIGKILL of pytest *",
        "SIGKILL of all ssh, srun, mpirun and of pytest",
    ),
    "kubernetes": ("SIGKILL of all ssh, srun, mpirun and of pytest",),
    "mpirun": ("SIGKILL of pytest *",),
}


@pytest.fixture
def session(request, tmp_path):
    """A session on two nodes of the kind that is asked for."""
    with place_of(request.param, request, tmp_path) as here:
        session = Session(folder=tmp_path / "session", place=here, patient=False)
        yield session
        session.stop()


@pytest.mark.parametrize(
    ("session", "name"),
    [
        pytest.param(kind, name, marks=MARKS[kind], id=f"{kind}-{name.removesuffix(FOLLOWED)}")
        for kind, names in CELLS.items()
        for name in names
    ],
    indirect=["session"],
)
def test_nothing_is_left_after(session, name):
    met = fault(name.removesuffix(FOLLOWED))
    outcome = run_cell(session, met, follow=name.endswith(FOLLOWED))
    assert not outcome.problems()
    wait_until(lambda: not session.place.jobs(), what="the end of all jobs")


def test_all_limits_fit_into_the_promise():
    for seconds in (
        remote_node.TERMINATION_GRACE_S,
        workers.END_LIMIT_S + workers.LOOK_S,
        run.DEATH_LIMIT_S,
        run.SETTLE_S + run.PEER_GRACE_S,
    ):
        assert seconds <= PROMISE_S - 0.3
    lost_s = remote_node.HEARTBEAT_TIMEOUT_S + gang.LOST_SWEEP_LIMIT_S
    assert lost_s + remote_call.END_LIMIT_S < LIMIT_S


HANGING_PYTHON = """\
#!{python} -S
import os, pathlib, signal, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path(__file__).parent.joinpath(f"looking{{os.getpid()}}").touch()
time.sleep(600)
"""


@pytest.mark.ssh
@pytest.mark.parametrize("session", ["ssh"], indirect=True)
def test_nothing_is_left_of_a_look_at_hosts_that_hangs(session):
    """What runs the trainer there says nothing and does not want to end."""
    python = session.folder / session.token
    python.write_text(HANGING_PYTHON.format(python=shutil.which("python3")), encoding="utf-8")
    python.chmod(0o755)
    session.begin("sleeps", f"--dlperf-set=stubborn-tree.python={python}")
    wait_until(
        lambda: len(list(session.folder.glob("looking*"))) == NODES,
        what="the look at the hosts",
    )
    assert session.left()
    session.process.kill()
    assert not session.left_after(LIMIT_S)


@pytest.mark.network
@pytest.mark.parametrize("session", ["network"], indirect=True)
def test_a_cut_that_is_mended_at_once_does_no_harm(session, network):
    session.start(behaviour="exits")
    network.cut(network.names[1])
    network.mend(network.names[1])
    session.go_on()
    session.ended()
    assert [one["status"] for one in session.runs()] == ["ok"]
    assert not session.left_after(LIMIT_S)


@pytest.fixture
def other(session, slurm):
    """A step of somebody else, on the same nodes: Slurm keeps the steps of a run waiting for it."""
    with subprocess.Popen(
        [command("srun"), "--nodes=2", "--ntasks=2", "--cpu-bind=none", "sleep", "120"],
        env=session.place.environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as other:
        try:
            wait_until(lambda: len(slurm.processes()) == 2, what="the other step")
            yield other
        finally:
            other.kill()


@pytest.mark.slurm
@pytest.mark.parametrize("session", ["slurm"], indirect=True)
def test_a_run_that_queues_waits_and_has_not_failed(session, other):
    session.begin("tame")
    wait_until(lambda: "waiting" in session.output, what="the queue")
    other.kill()
    session.ended()
    assert [one["status"] for one in session.runs()] == ["ok"]
    assert not session.left()


@pytest.mark.slurm
@pytest.mark.parametrize("session", ["slurm"], indirect=True)
def test_nothing_is_left_of_a_run_that_is_ended_in_the_queue(session, other):
    del other  # it ends after this session
    session.begin("sleeps")
    wait_until(
        lambda: [one for one in session.clients() if "--overlap" not in one.command],
        what="a step that waits",
    )
    session.process.send_signal(signal.SIGINT)
    session.ended()
    assert not session.left()


# Chosen by the host, so that one session tries several.
ANY_PYTHON = """\
#!/bin/sh
case "$DLPERF_TEST_HOST" in
    */{first}/) exec {python} "$@" ;;
    *) exec {other} "$@" ;;
esac
"""


@pytest.mark.ssh
@pytest.mark.parametrize("session", ["ssh"], indirect=True)
def test_nothing_is_left_with_an_old_python_on_the_nodes(session):
    found = [old_python(version) for version in ("3.6", "3.8")]
    pythons = [python for python in found if python is not None]
    if not pythons:
        pytest.skip("there is no Python 3.6 or 3.8 here")
    any_python = session.folder / "any-python"
    first = session.place.hosts[0]
    text = ANY_PYTHON.format(first=first, python=pythons[0], other=pythons[-1])
    any_python.write_text(text, encoding="utf-8")
    any_python.chmod(0o755)
    with (session.folder / "baselines/local/cluster.yaml").open("a") as cluster:
        cluster.write(f"python: {any_python}\n")
    session.start(behaviour="exits")
    executables = [
        Path(f"/proc/{session.supervisor(rank)[0]}/exe").readlink() for rank in range(NODES)
    ]
    assert {one.name for one in executables} == {python.name for python in pythons}
    session.go_on()
    session.ended()
    assert [one["status"] for one in session.runs()] == ["ok"]
    assert not session.left_after(LIMIT_S)

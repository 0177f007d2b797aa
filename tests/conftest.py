"""What the tests that run pytest itself share: a copy of the shipped suite to play with."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import fork_server
import pytest
from clusters.kubernetes import Kubernetes
from clusters.network import Network
from clusters.podman import Podman
from clusters.ports import free_ports, worker_number
from clusters.requirements import missing
from clusters.slurm import Slurm
from clusters.ssh import SshHosts
from hypothesis import settings
from suites import Command, Suite, import_package, ran_command

from pytest_dlperf.files import masking
from pytest_dlperf.files.ci import ENGINES

ROOT = Path(__file__).parent.parent

# What runs below nohup ignores SIGHUP, what a script starts in the background SIGINT, and so does
# all that it starts. Tests send both, to themselves and to what they start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine or a load makes no example wrong. The night tries more of them.
settings.register_profile("quick", settings(), deadline=None, max_examples=30)
settings.register_profile("nightly", settings(), deadline=None, max_examples=300)
settings.load_profile("quick")

SYSTEM_FILES = {
    "ngc_pytorch-resnet50.yaml",
    "paddle-arcface_r50.yaml",
    "paddle-resnet50.yaml",
    "pytorch-resnet18.yaml",
    "pytorch-resnet50.yaml",
    "tensorflow-bert_base.yaml",
}

# Fixture -> the marker of the tests that use it, which names the kind of cluster.
CLUSTERS = {
    "ssh_hosts": "ssh",
    "slurm": "slurm",
    "network": "network",
    "podman": "podman",
}

# What takes a good part of every session: the first is for the tests around, the others come with
# the trainers.
OTHER_PLUGINS = "-p no:hypothesispytest -p no:anyio -p no:typeguard"

# What the group of the same name installs.
TRAINERS = ("accelerate", "deepspeed", "jax", "pytorch_lightning", "torchtitan", "transformers")

# What the README's command leaves out: real training, containers, a browser, the fault matrix,
# whole CI files of examples/ (``checkout``), and what is for the night.
CI_ONLY = {"training", "trainers", "podman", "browser", "faults", "checkout", "nightly"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is there by now out of what sessions within tests collect at their ends."""
    if (worker := getattr(session.config, "workerinput", None)) is not None:
        session.items[:] = _longest_first(session.items, worker["workercount"])
    gc.collect()
    gc.freeze()
    # Hypothesis is called at each collection.
    gc.set_threshold(20_000)


def _longest_first(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the tests that take minutes out, so that each worker begins with some.

    ``--dist worksteal`` gives each an equal share, of tests that follow each other.
    """
    marks = {item: mark for item in items if (mark := item.get_closest_marker("minutes"))}
    longest = sorted(marks, key=lambda item: -marks[item].args[0])
    others = [item for item in items if item not in marks]
    ordered: list[pytest.Item] = []
    for number in range(workers):
        share = (len(items) - len(ordered)) // (workers - number)
        ordered += (dealt := longest[number::workers])
        ordered += others[: max(0, share - len(dealt))]
        del others[: max(0, share - len(dealt))]
    return ordered + others


@pytest.fixture(scope="session", autouse=True)
def _yaml_stays() -> None:
    """Import PyYAML before pytester takes note of what to unload: its C part loads only once."""
    import yaml  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        fork_server.wait_for_no_disk(patch.setattr)
        yield


@pytest.fixture(autouse=True)
def _no_reports_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions within tests write into no summary and no history of what runs the tests."""
    ours = ("DLPERF_HISTORY", "DLPERF_NOTIFY", "DLPERF_NOTIFY_ON")
    of_github = ("GITHUB_STEP_SUMMARY", "GITHUB_REF", "GITHUB_REPOSITORY")
    for name in (*ours, *of_github, *(engine.mark for engine in ENGINES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _says_what_other_tests_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_unspoken", set())


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Have ``runpytest_subprocess`` fork instead of importing all anew."""
    monkeypatch.setattr(pytester, "popen", partial(fork_server.popen, pytester.popen))
    return pytester


@pytest.fixture
def own_environment(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the sessions of a test meet nothing of other tests, nor of who runs them."""
    # Byte code is cached, as it is for users: the suites of all tests start the same modules.
    for name in (
        "DLPERF_CLUSTER",
        "DLPERF_HOSTS",
        "DLPERF_LAUNCHER",
        "DLPERF_SSH",
        "DLPERF_STRICT",
        "PYTHONDONTWRITEBYTECODE",
        # Where this test runs in a worker, its sessions do not.
        "PYTEST_XDIST_WORKER",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{OTHER_PLUGINS} -p no:benchmark")
    # The leases by which sessions take turns on a machine lie there: tests have some each.
    temporary = pytester.path / "tmp"
    temporary.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(temporary))
    # So do the locks on hosts, which are the machine's.
    monkeypatch.setenv("DLPERF_LOCK", os.urandom(8).hex())


@pytest.fixture(scope="session")
def _package_stays() -> None:
    import_package()


@pytest.fixture
def suite(
    request: pytest.FixtureRequest,
    _package_stays: None,
    pytester: pytest.Pytester,
    own_environment: None,
) -> Suite:
    """A copy of ``bench_tests`` and of the published baselines."""
    del own_environment
    shutil.copytree(
        ROOT / "bench_tests",
        pytester.path / "bench_tests",
        ignore=_what_does_not_ship,
    )
    shutil.copytree(ROOT / "baselines" / "dlperf-v100", pytester.path / "baselines/dlperf-v100")
    # Strict as the project itself is: a warning of ours would fail here.
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    return Suite(pytester, in_process=request.node.get_closest_marker("in_process") is not None)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs ``pytest-dlperf`` with its arguments, in this process and folder."""
    return lambda *arguments: ran_command(capfd, arguments)


@pytest.fixture
def with_benchmark(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the sessions of a test load pytest-benchmark, as they do where it is installed."""
    del suite  # it leaves it out, so it comes first
    monkeypatch.setenv("PYTEST_ADDOPTS", OTHER_PLUGINS)


def _what_does_not_ship(folder: str, names: list[str]) -> set[str]:
    """Byte code, and system files that a user has added to the checkout."""
    added = set(names) - SYSTEM_FILES if Path(folder).name == "systems" else set()
    return {"__pycache__", *added}


@pytest.fixture
def workers() -> list[str]:
    """The arguments for xdist: for what has to pass between workers and controller."""
    return ["-n", "2"]


@pytest.fixture(scope="session")
def running_ssh_hosts(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[SshHosts]:
    worker = worker_number(worker_id)
    hosts = SshHosts(
        folder=tmp_path_factory.mktemp("ssh"),
        # Other addresses for each worker: runs lock the hosts that they use.
        names=[f"127.0.{worker}.{number}" for number in range(2, 6)],
        port=free_ports(1, worker=worker)[0],
    )
    try:
        hosts.set_up()
        yield hosts
    finally:
        hosts.tear_down()


@pytest.fixture
def ssh_hosts(running_ssh_hosts: SshHosts) -> Iterator[SshHosts]:
    """Four hosts with an sshd each, on loopback; as they were before after each test."""
    running_ssh_hosts.bring_up()
    yield running_ssh_hosts
    running_ssh_hosts.reset()


@pytest.fixture
def over_ssh(suite: Suite, ssh_hosts: SshHosts, monkeypatch: pytest.MonkeyPatch) -> SshHosts:
    """Hosts that the sessions of a test launch on, two devices each."""
    del suite  # it clears the environment, so it comes first
    monkeypatch.setenv("DLPERF_SSH", ssh_hosts.ssh_command)
    monkeypatch.setenv("DLPERF_HOSTS", ",".join(f"{name}:2" for name in ssh_hosts.names))
    return ssh_hosts


@pytest.fixture(scope="session")
def running_network(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Network]:
    network = Network(tmp_path_factory.mktemp("network"), worker_number(worker_id))
    try:
        network.set_up()
        yield network
    finally:
        network.tear_down()


@pytest.fixture
def network(running_network: Network) -> Iterator[Network]:
    """Four hosts with links that can be cut; all mended after each test."""
    yield running_network
    running_network.reset()


@pytest.fixture(scope="session")
def running_slurm(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Slurm]:
    slurm = Slurm(tmp_path_factory.mktemp("slurm"), worker_number(worker_id))
    try:
        slurm.set_up()
        yield slurm
    finally:
        slurm.tear_down()


@pytest.fixture
def slurm(running_slurm: Slurm) -> Iterator[Slurm]:
    """A Slurm of four nodes with two GPUs each; without jobs after each test."""
    yield running_slurm
    running_slurm.reset()


@pytest.fixture(scope="session")
def running_podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    podman = Podman(tmp_path_factory.mktemp("podman"))
    try:
        podman.set_up()
        yield podman
    finally:
        podman.tear_down()


@pytest.fixture
def podman(
    suite: Suite, running_podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Podman]:
    """A Podman with the images ``tested`` and ``accepted``; without containers after each test."""
    del suite  # it clears the environment, so it comes first
    for name, value in running_podman.environment.items():
        monkeypatch.setenv(name, value)
    yield running_podman
    running_podman.reset()


@pytest.fixture(scope="session")
def running_kubernetes(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Kubernetes]:
    kubernetes = Kubernetes(tmp_path_factory.mktemp("kubernetes"), worker_number(worker_id))
    try:
        kubernetes.set_up()
        yield kubernetes
    finally:
        kubernetes.tear_down()


@pytest.fixture
def kubernetes(running_kubernetes: Kubernetes) -> Iterator[Kubernetes]:
    """A stand-in for a cluster; without any object after each test."""
    yield running_kubernetes
    running_kubernetes.reset()


def pytest_collection(session: pytest.Session) -> None:
    """Share between workers what a fresh clone lacks: the test modules with rewritten asserts.

    Each worker imports its part of them first, and finds the others' parts cached.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [ROOT / given for given in session.config.args] != [ROOT / "tests"]:
        return
    modules = sorted(ROOT.glob("tests/test_*.py"))
    for module in modules[worker_number(worker["workerid"]) :: worker["workercount"]]:
        with suppress(Exception):  # collecting it tells
            import_module(module.stem)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a part that is missing; CI installs all, so there the tests run or fail."""
    for item in items:
        _add_markers(item)
    if os.environ.get("CI") == "true":
        return
    for kind, reason in _what_is_missing().items():
        skip = pytest.mark.skip(reason=reason)
        for item in items:
            if item.get_closest_marker(kind) is not None:
                item.add_marker(skip)


def _add_markers(item: pytest.Item) -> None:
    fixtures = getattr(item, "fixturenames", ())
    for fixture in CLUSTERS.keys() & fixtures:
        item.add_marker(CLUSTERS[fixture])
    if "pytester" in fixtures:
        item.add_marker("session")
    marks = {mark.name for mark in item.iter_markers()}
    if "trainers" in marks:
        item.add_marker("nightly")
    if CI_ONLY & marks.union(fixtures):
        item.add_marker("ci")


def _what_is_missing() -> dict[str, str]:
    """Say of each marker whose tests need more than is here what that is."""
    kinds = (*CLUSTERS.values(), "mpi")
    reasons = {kind: reason for kind in kinds if (reason := missing(kind)) is not None}
    if find_spec("torch") is None:
        reasons["training"] = "needs PyTorch: pip install -e '.[smoke]'"
    if lacking := [package for package in TRAINERS if find_spec(package) is None]:
        reasons["trainers"] = (
            f"needs {', '.join(lacking)}: pip install -e '.[smoke]' --group trainers"
        )
    return reasons

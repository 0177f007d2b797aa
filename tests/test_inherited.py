"""What of the environment around a session reaches the trainers that it launches, and what not."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest
from clusters.processes import LONG_S
from clusters.requirements import command
from launches import THIS_MACHINE

from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.launchers import LocalLauncher, SlurmLauncher, SshLauncher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import RunOrder
from pytest_dlperf.launch.run import run_on_hosts

TELL = "import json, os; print('environment', json.dumps(dict(os.environ)))"
OUTER = (
    *("PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"),
    *("COV_CORE_DATAFILE", "COVERAGE_PROCESS_START"),
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "CROSS_RANK"),
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "NNODES", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "PET_NNODES", "PET_RDZV_ENDPOINT"),
    *("TF_CONFIG", "PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_MASTER"),
    *("FLAGS_selected_gpus", "TRAINING_ROLE"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_IP", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    *("HOROVOD_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_GLOO_RENDEZVOUS_ADDR"),
    *("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_NODEID", "SLURMD_NODENAME"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_UNIVERSE_SIZE", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_ess"),
    *("PMI_RANK", "PMI_FD", "PMIX_NAMESPACE", "PMIX_SERVER_URI2", "HYDI_CONTROL_FD"),
    *("MPI_LOCALRANKID", "MV2_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK"),
)
"""What launchers and tests tell each process that they start."""
SETTINGS = (
    *("OMP_NUM_THREADS", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "RANKINGS"),
    *("JAX_PLATFORMS", "JAX_COMPILATION_CACHE_DIR", "HOROVOD_TIMELINE", "HYDRA_FULL_ERROR"),
    # In a container mpirun starts nothing for root without these.
    *("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"),
    *("PADDLE_HOME", "PADDLE_PDX_CACHE_HOME"),
    *("OMPI_MCA_btl_tcp_if_include", "PMIX_MCA_gds", "FLAGS_cudnn_exhaustive_search"),
    *("TF_XLA_FLAGS", "TPU_WORKER_ID", "MASTER_PASSWORD"),
)
"""What people set, close to the above as some of it is."""


def environment_on(
    launcher,
    host,
    folder,
    *,
    added=MappingProxyType({}),
    head_only=False,
):
    """The environment of a program that is launched there; ``added`` is what the user sets."""
    log = folder / f"{len(list(folder.iterdir()))}.log"
    own = Node(host=host, device_ids=(0,), log=log)
    node = NodeCommand(
        node_rank=0,
        host=host.name,
        address=host.address,
        arguments=(sys.executable, "-c", TELL),
        environment=dict(added),
        working_directory=None,
        log=log,
    )
    order = RunOrder(nodes=(own,), plan=lambda _: [node], time_limit_s=60, head_only=head_only)
    assert run_on_hosts(launcher, order).succeeded
    [line] = [line for line in log.read_text().splitlines() if line.startswith("environment ")]
    return json.loads(line.removeprefix("environment "))


def test_a_trainer_takes_no_part_in_what_the_session_was_started_in(tmp_path, monkeypatch):
    for name in (*OUTER, *SETTINGS):
        monkeypatch.setenv(name, "outer")
    environment = environment_on(LocalLauncher(), THIS_MACHINE, tmp_path)
    assert [name for name in OUTER if name in environment] == []
    assert [name for name in SETTINGS if environment.get(name) != "outer"] == []


def test_what_the_user_sets_for_a_trainer_is_set_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "outer")
    added = dict.fromkeys(OUTER, "set")
    environment = environment_on(LocalLauncher(), THIS_MACHINE, tmp_path, added=added)
    assert {name: environment[name] for name in OUTER} == added


@pytest.mark.ssh
def test_what_a_host_s_sshd_passes_on_is_no_exception(ssh_hosts, tmp_path):
    [name, *_] = ssh_hosts.names
    passed = {"TF_CONFIG", "PADDLE_TRAINER_ID", "SLURM_NTASKS"}
    assert passed <= set(ssh_hosts.run(name, "env", "-0").replace("=", "\0").split("\0"))
    launcher = SshLauncher(ssh_hosts.ssh_command.split(" "))
    environment = environment_on(launcher, Host(name=name, address=name), tmp_path)
    assert passed.isdisjoint(environment)
    assert "SSH_CONNECTION" in environment


@pytest.mark.slurm
def test_a_step_knows_itself_and_a_trainer_beside_slurm_knows_nothing_of_the_job(
    slurm, tmp_path, monkeypatch
):
    """What the steps of a job are told is what srun says; mpirun on a head may use the job."""
    with slurm.allocation(2) as allocation:
        for name, value in allocation.environment.items():
            if name.startswith("SLURM"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("SLURM_PROCID", "7")
        monkeypatch.setenv("PADDLE_TRAINER_ID", "7")
        name, address = slurm.names[1], slurm.addresses[1]
        step = environment_on(SlurmLauncher(), Host(name=name, address=address), tmp_path)
        assert step["SLURM_JOB_ID"] == allocation.job_id
        assert (step["SLURM_PROCID"], step["SLURM_NTASKS"]) == ("0", "1")
        assert step["SLURMD_NODENAME"] == name
        assert "PADDLE_TRAINER_ID" not in step
        beside = environment_on(LocalLauncher(), THIS_MACHINE, tmp_path)
        assert [name for name in beside if name.startswith("SLURM")] == []
        head = environment_on(LocalLauncher(), THIS_MACHINE, tmp_path, head_only=True)
        assert head["SLURM_JOB_ID"] == allocation.job_id
        assert "PADDLE_TRAINER_ID" not in head


# A session that one process of an outer mpirun is; what it launches is an mpirun again.
NESTED = """\
import sys
from pathlib import Path
from launches import nodes_with, run_commands
from pytest_dlperf.launch.plan import NodeCommand
log = Path(sys.argv[1])
again = (*sys.argv[2:], sys.executable, "-c",
    "import os; os.write(1, b'rank %s\\\\n' % os.environb[b'OMPI_COMM_WORLD_RANK'])")
node = NodeCommand(node_rank=0, host="localhost", address="127.0.0.1", arguments=again,
    environment={}, working_directory=None, log=log)
sys.exit(not run_commands([node], time_limit_s=60).succeeded)
"""


@pytest.mark.mpi
def test_a_session_below_mpirun_launches_an_mpirun_of_its_own(tmp_path):
    """Open MPI refuses to be started by one of its own processes."""
    mpirun = (command("mpirun"), "--allow-run-as-root", "--oversubscribe", "-np")
    log = tmp_path / "run.log"
    session = (sys.executable, "-c", NESTED, str(log), *mpirun, "2")
    done = subprocess.run(
        [*mpirun, "1", *session],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert done.returncode == 0, (done.stderr, log.exists() and log.read_text())
    assert sorted(log.read_text().split("\n")) == ["", "rank 0", "rank 1"]

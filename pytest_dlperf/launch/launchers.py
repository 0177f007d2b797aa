"""Launchers: the ways to have a program run on a host, with its standard streams here.

A trainer inherits what launchers hand on, but for the variables of the tests, and of a training
around them. They would switch on coverage measurement, or make a whole run believe to be one rank
of another: that is what launchers set for each process they start. What people set to tune a
trainer stays, whatever it begins with: ``JAX_PLATFORMS``, ``OMPI_MCA_btl``, ``HOROVOD_TIMELINE``.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, final

from msgspec.structs import replace

from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.model.errors import BrokenError

DEFAULT_PYTHON: Final = "python3"
"""Supervises runs on other hosts, unless ``cluster.yaml`` names another."""
ADDRESS: Final = "127.0.0.1"
"""Where the nodes of this machine reach each other."""
CALL_LIMIT_S: Final = 30.0
"""How long ssh may take to read its configuration, and a queue to answer."""
_POINTS_TO_HELP: Final = re.compile(r"(?:run|see|try) ['\"`].* --?help\b", re.IGNORECASE).match
"""What the last line is after a wrong option, with GNU's programs, Slurm's and Docker."""


SLURM: Final = ("SLURM.*",)
"""What Slurm tells the processes of a job and of its steps."""
PMI: Final = ("PMI_.*", "PMIX_(?!MCA_).*")
"""How a process started by srun or mpirun finds the others of its own step or job."""
_FOREIGN: Final = (
    # pytest and its plugins
    *("PYTEST_.*", "COV_CORE_.*", "COVERAGE_PROCESS_.*"),
    # torchrun, and all that speaks as it does: DeepSpeed, Accelerate, Lightning, Kubeflow
    "(LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?RANK",
    "(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE",
    "(LOCAL|CROSS)_SIZE",
    *("ROLE_NAME", "NNODES", "MASTER_(ADDR|PORT)", "TORCHELASTIC_.*", "PET_.*"),
    # TensorFlow, Paddle, JAX, Horovod
    *("TF_CONFIG", "PADDLE_(?!HOME|PDX_|NCCL_).*", "TRAINING_ROLE", "FLAGS_selected_.*"),
    "JAX_COORDINATOR.*",
    "JAX_(NUM_PROCESSES|PROCESS_(COUNT|ID|INDEX)|LOCAL_PROCESS_ID|LOCAL_DEVICE_IDS)",
    "HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|GLOO_.*|HOSTNAME)",
    # MPI: Open MPI, MPICH and its kin, jsrun
    *("OMPI_(?!MCA_|ALLOW_RUN_AS_ROOT).*", "OMPI_MCA_(ess|ess_base_.*|orte_.*|pmix|initial_wdir)"),
    *("HYDI_.*", "MPI_LOCAL(RANKID|NRANKS)", "MV2_COMM_WORLD_.*", "JSM_NAMESPACE_.*"),
    *PMI,
    *SLURM,
)


def foreign_names(kept: Sequence[str]) -> str:
    """Give the expression of the whole names that a trainer must not inherit.

    ``kept`` are entries of the list above that belong to what the trainer is started by.
    """
    return "|".join(entry for entry in _FOREIGN if entry not in kept)


class Engine(ABC):
    """What starts runs on nodes: a launcher, or a queue that gives hosts."""

    name: ClassVar[str]
    """``--dlperf-launcher`` takes it."""
    has_own_files: ClassVar[bool] = False
    """Nodes have another file system than this machine, such as that of an image it starts."""
    sets: ClassVar[tuple[str, ...]] = ()
    """Variables that it sets for what it starts, and that a trainer inherits."""
    takes: ClassVar[tuple[str, ...]] = ()
    """Options that users set for it, as in ``slurm.srun``; to others they mean nothing."""

    def __init__(self, python: str = DEFAULT_PYTHON) -> None:
        self.python = python

    def options(self, variables: LaunchVariables) -> dict[str, tuple[str, ...]]:
        """Give what it starts a run with beside its command, to compare sessions by."""
        return {name: variables.engine[name] for name in self.takes if name in variables.engine}


class Launcher(Engine):
    """A way to have a program run on a host; plugins add more (``pytest_dlperf_launchers``).

    A launcher has a name, declares what it can do, and gives a command. The program's standard
    streams are those of the command, and the end of the command's standard input has to reach the
    program as the end of its own.
    """

    remote: ClassVar[bool] = True
    """A network lies between, which may be cut. Hosts have to be named."""
    queues: ClassVar[bool] = False
    """A host that is busy keeps the command waiting, instead of refusing it."""
    on_this_machine: ClassVar[bool] = False
    """Every host is this machine, whatever it is called."""
    needs_allocation: ClassVar[bool] = False
    """It works inside an allocation of Slurm only."""

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """Give hosts the addresses by which they reach each other; as declared by default."""
        return tuple(hosts)

    def taking(self, options: Mapping[str, tuple[str, ...]]) -> Launcher:
        """Give the launcher with these options, by the names that it ``takes``."""
        del options
        return self

    @abstractmethod
    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """Give the command, to be run here, that runs the program on the host.

        ``alongside``: the program does little and need not wait until the host is free.
        """


@final
class LocalLauncher(Launcher):
    """Starts every node on this machine, whatever its host is called."""

    name = "local"
    remote = False
    on_this_machine = True

    def __init__(self) -> None:
        super().__init__(sys.executable)

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """Take names for addresses, and those of this machine for loopback."""
        return tuple(
            replace(host, address=ADDRESS)
            if is_this_machine(host) and host.address == host.name
            else host
            for host in hosts
        )

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """Give the program itself."""
        del host, alongside
        return list(program)


@final
class SshLauncher(Launcher):
    """Starts a node's program on another host, as ``ssh`` from a terminal would.

    The user's whole ssh configuration holds: ProxyJump, agents, ``Match``, known hosts.
    """

    name = "ssh"

    # What the user's configuration says of these is not asked: no one is there to type, and a
    # host that cannot be reached has to be noticed. All else is the user's.
    _OPTIONS: Final = (
        "-T",
        "-x",
        "-oBatchMode=yes",
        # A master that is open already is used, but a run must not become one that others wait for.
        "-oControlMaster=no",
        "-oConnectTimeout=10",
        "-oServerAliveInterval=2",
        "-oServerAliveCountMax=3",
        "-oLogLevel=ERROR",
    )

    def __init__(self, client: Sequence[str] = ("ssh",), python: str = DEFAULT_PYTHON) -> None:
        super().__init__(python)
        self._client = tuple(client)

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """Give hosts the addresses that the ssh configuration has for their names."""
        with ThreadPoolExecutor(max_workers=8) as threads:
            return tuple(threads.map(self._resolved, hosts))

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """Give the client's command, which hands the program to the login shell of the host."""
        del alongside
        return [*self._client, *self._OPTIONS, "--", host.name, shlex.join(program)]

    def _resolved(self, host: Host) -> Host:
        if host.address != host.name.rpartition("@")[2] or not re.search("[a-z]", host.address):
            return host  # the user has said it
        printed = output_of(
            [*self._client, "-G", "--", host.name],
            hint="is --dlperf-ssh right, and what does the ssh configuration run ('Match exec')?",
        )
        words = (line.partition(" ") for line in printed.splitlines())
        address = next((value for key, _, value in words if key == "hostname"), host.address)
        return replace(host, address=address)


@final
class SlurmLauncher(Launcher):
    """Starts a node's program as a step on that node, in a job or the allocation of this process.

    A step has its node to itself: Slurm keeps it waiting until the steps of other sessions are
    over, and ends all of it when the step ends, however that comes about.
    """

    name = "slurm"
    queues = True
    needs_allocation = True
    sets = (*SLURM, *PMI)
    takes = ("slurm.srun",)

    def __init__(
        self, python: str = DEFAULT_PYTHON, srun: Sequence[str] = (), *, job: str = ""
    ) -> None:
        super().__init__(python)
        self._srun = srun
        self._job = job

    def taking(self, options: Mapping[str, tuple[str, ...]]) -> SlurmLauncher:
        """Give the launcher with these options of ``srun``."""
        return SlurmLauncher(self.python, options.get("slurm.srun", ()), job=self._job)

    _NODE: Final = re.compile(r"^NodeName=(\S+).*?\bNodeAddr=(\S+)", re.MULTILINE)

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """Give nodes the addresses that Slurm knows them by."""
        names = ",".join(host.name for host in hosts)
        printed = output_of(
            ["scontrol", "--oneliner", "show", "node", names],
            hint="does Slurm run here, and know these nodes?",
        )
        addresses = dict(self._NODE.findall(printed))
        return tuple(replace(host, address=addresses.get(host.name, host.name)) for host in hosts)

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """Give the ``srun`` that runs the program as one task, with all that the node has."""
        sharing = ["--overlap"] if alongside else []
        job = [f"--jobid={self._job}"] if self._job else []
        return [
            "srun",
            "--kill-on-bad-exit=1",
            "--unbuffered",
            "--cpu-bind=none",
            "--quiet",
            *sharing,
            *self._srun,
            # The last one holds.
            *job,
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={host.name}",
            "--",
            *program,
        ]


def built_in_launchers(ssh_client: Sequence[str], python: str) -> list[Launcher]:
    """Make the launchers that come with the package."""
    return [LocalLauncher(), SshLauncher(ssh_client, python), SlurmLauncher(python)]


def is_this_machine(host: Host) -> bool:
    """Say whether a host's name, without a user, means this machine."""
    own = socket.gethostname().lower()
    return host.name.lower() in {"localhost", ADDRESS, own, own.partition(".")[0]}


def lock_scope(lock: str, host: Host, launcher: Launcher) -> str:
    """Give what a host's locks are told apart by from those of other hosts on the same machine.

    One machine plays several hosts for addresses on loopback, and where the launcher says that all
    hosts are this machine, whatever they are called.
    """
    is_played = launcher.on_this_machine or host.address.startswith("127.")
    return f"{lock}/{host.address if is_played and host.address != ADDRESS else ''}"


def lock_name(scope: str, device: int | str) -> str:
    """Name the abstract socket that a run binds while it uses a device of a host.

    The kernel frees it with the process; names are those of one network namespace.
    """
    return f"\0pytest-dlperf/{scope}/{device}"


class NoAnswerError(BrokenError):
    """A command does not answer: it may have done what it was asked for."""


def output_of(command: Sequence[str], *, stdin: str = "", hint: str = "") -> str:
    """Return what a command of a launcher or a queue prints, apart from signals to pytest.

    Raises:
        NoAnswerError: It does not end.
        BrokenError: It cannot be started, or has failed; ``hint`` says what to look at.
    """
    hint = hint and f"; {hint}"
    try:
        done = subprocess.run(  # noqa: S603 - the user's own client, or the queue's
            command,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=CALL_LIMIT_S,
            start_new_session=True,
        )
    except OSError as error:
        raise BrokenError(f"cannot start {command[0]!r}: {error.strerror}{hint}") from error
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"{command[0]}: no answer for {CALL_LIMIT_S:g} s{hint}") from error
    if done.returncode != 0:
        said = last_words((done.stderr or done.stdout).splitlines())
        raise BrokenError(f"{command[0]}: {said or f'status {done.returncode}'}{hint}")
    return done.stdout


def last_words(lines: Sequence[str]) -> str:
    """Return the last line that says something, without secrets; ``Try "srun --help"`` does not."""
    said = (line.strip() for line in reversed(lines))
    last = next((line for line in said if line and not _POINTS_TO_HELP(line)), "")
    return last and in_message(last)

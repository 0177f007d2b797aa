"""A Slurm of four nodes: its own munged, controller and a slurmd for each node."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from clusters.ports import free_ports
from clusters.processes import LONG_S, Process, Server, end, processes_with, wait_until
from clusters.requirements import command, required

CPUS_PER_NODE = 8
GPUS_PER_NODE = 2

_CONFIGURATION = """\
ClusterName={cluster}
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=300
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""

# Prints the environment of an allocation and keeps the allocation until its input ends.
_HOLD = """\
import json, os, sys
print(json.dumps(dict(os.environ)), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Nodes that Slurm has allocated, and the environment of a program inside."""

    job_id: str
    environment: dict[str, str]


@dataclass(slots=True)
class Slurm:
    """A real Slurm; ``worker`` keeps its names, ports and addresses apart from another's."""

    folder: Path
    worker: int
    _servers: list[Server] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of the nodes: node1 to node4, for the second worker node11 to node14."""
        return [f"node{10 * self.worker + number}" for number in range(1, 5)]

    @property
    def addresses(self) -> list[str]:
        """The addresses of the nodes, in the order of their names."""
        return [f"127.0.{self.worker}.{number}" for number in range(2, 6)]

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to reach this Slurm."""
        return {"SLURM_CONF": str(self._configuration)}

    @property
    def surroundings(self) -> dict[str, str]:
        """The environment of a user of this Slurm who is in none of its allocations."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
        return {**ours, **self.environment}

    @property
    def _configuration(self) -> Path:
        return self.folder / "slurm.conf"

    def set_up(self) -> None:
        required("slurm")
        self._write_configuration()
        socket_file = self.folder / "munge.socket"
        munged = self._server(
            "munged",
            "--foreground",
            # The folder of the socket may lie below one that everybody may write to.
            "--force",
            f"--socket={socket_file}",
            f"--key-file={self.folder / 'munge.key'}",
            f"--pid-file={self.folder / 'munged.pid'}",
            f"--log-file={self.folder / 'munged.log'}",
            f"--seed-file={self.folder / 'munged.seed'}",
            "--num-threads=4",
        )
        munged.wait_for(socket_file.is_socket)
        controller = self._server("slurmctld", "-D", "-f", str(self._configuration))
        nodes = [
            self._server("slurmd", "-D", "-f", str(self._configuration), "-N", name)
            for name in self.names
        ]
        for server in (controller, *nodes):
            server.wait_for(self._all_idle)

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command of Slurm, outside of any allocation, and give what it prints."""
        done = subprocess.run(
            [command(words[0]), *words[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
            env=self.surroundings,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    @contextmanager
    def allocation(self, nodes: int = 4, *arguments: str) -> Iterator[Allocation]:
        """Nodes of a user's own for as long as the context lasts.

        The environment is what salloc gives to the program that it starts, nothing made up.
        """
        holder = subprocess.Popen(
            [
                command("salloc"),
                f"--nodes={nodes}",
                "--exclusive",
                f"--gpus-per-node={GPUS_PER_NODE}",
                *arguments,
                sys.executable,
                "-c",
                _HOLD,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.surroundings,
        )
        assert holder.stdout is not None
        line = holder.stdout.readline()
        try:
            if not line:
                _, errors = holder.communicate()
                raise RuntimeError(f"no allocation of {nodes} nodes: {errors}")
            environment = json.loads(line)
            yield Allocation(job_id=environment["SLURM_JOB_ID"], environment=environment)
        finally:
            holder.communicate()

    def batch(self, script: str, *arguments: str, nodes: int = 4, words: Sequence[str] = ()) -> str:
        """Run a script with some words by sbatch, wait for its end, and give what it prints.

        Raises:
            RuntimeError: It did not end with 0; with what it has printed.
        """
        return self.end_of(self.submit(script, *arguments, nodes=nodes, words=words))

    def submit(
        self, script: str, *arguments: str, nodes: int = 4, words: Sequence[str] = ()
    ) -> str:
        """Submit a script by sbatch; the job's id."""
        file = self.folder / f"batch-{secrets.token_hex(4)}.sh"
        file.write_text(script)
        given = [f"--nodes={nodes}", f"--gpus-per-node={GPUS_PER_NODE}", "--exclusive"]
        options = ["--parsable", f"--output={self.folder}/batch-%j.log", *given, *arguments]
        return self.run("sbatch", *options, str(file), *words).strip()

    def requeue(self, job: str) -> None:
        """Begin a job anew, at once: as it stands, Slurm waits two minutes first."""
        self.run("scontrol", "requeue", job)
        wait_until(lambda: self._state(job) == "PENDING", what=f"job {job} to wait")
        # That is what the two minutes are for: what the first start tells as it ends would be taken
        # for the end of the second.
        step = (f"slurmstepd: [{job}.", f"SLURM_CONF={self._configuration}")
        wait_until(
            lambda: not self.processes() and not processes_with(*step) and self._all_idle(),
            what="its end",
        )
        # A node refuses a start that was signed in the second in which it was told to end the job.
        time.sleep(1)
        self.run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def end_of(self, job: str) -> str:
        """Wait for a job's end, and give what it has printed; raises what ``batch`` does."""
        # sbatch --wait would look every ten seconds only.
        wait_until(lambda: self._exit_code(job) is not None, what=f"job {job}")
        output = self.folder / f"batch-{job}.log"
        printed = output.read_text() if output.exists() else ""
        if code := self._exit_code(job):
            raise RuntimeError(f"job {job} ended with {code}:\n{printed}")
        return printed

    def _told(self, job: str) -> dict[str, str]:
        words = self.run("scontrol", "show", "job", job).split()
        return dict(word.partition("=")[::2] for word in words)

    def _state(self, job: str) -> str:
        return self._told(job)["JobState"]

    def _exit_code(self, job: str) -> int | None:
        """What a batch job has ended with; ``None`` while it waits or runs."""
        told = self._told(job)
        if told["JobState"] in {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}:
            return None
        code, _, number = told["ExitCode"].partition(":")
        return int(code) or int(number)

    def jobs(self) -> list[str]:
        """The ids of the jobs that wait or run."""
        return self.run("squeue", "--noheader", "--format=%A").split()

    def processes(self) -> list[Process]:
        """What Slurm has started on its nodes and still runs."""
        return processes_with(f"SLURM_CONF={self._configuration}", "SLURMD_NODENAME=")

    def reset(self) -> None:
        """Cancel what a test has left running and wait until all nodes are free."""
        self._cancel_all()
        wait_until(self._all_idle, what="idle nodes")

    def tear_down(self) -> None:
        """End everything."""
        # A controller that has not come up cannot cancel anything.
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            self._cancel_all()
        for server in reversed(self._servers):
            server.stop()
        # slurmstepd outlives its slurmd; so does what it runs.
        end(self.processes())
        end(process for process in processes_with(f"{self.folder}/") if _is_of_slurm(process))

    def _cancel_all(self) -> None:
        if jobs := self.jobs():
            self.run("scancel", *jobs, check=False)
        end(self.processes())

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "--noheader", "--Node", "--format=%T", check=False).split()
        return states == ["idle"] * len(self.names)

    def _server(self, name: str, *arguments: str) -> Server:
        log = self.folder / f"{name}-{len(self._servers)}.log"
        server = Server([command(name), *arguments], log, self.environment)
        self._servers.append(server)
        server.start()
        return server

    def _write_configuration(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        machine = socket.gethostname().partition(".")[0]
        controller_port, *ports = free_ports(1 + len(self.names), worker=self.worker)
        nodes = [
            f"NodeName={name} NodeHostname={machine} NodeAddr={address} Port={port}"
            f" CPUs={CPUS_PER_NODE} RealMemory=1000000 Gres=gpu:{GPUS_PER_NODE} State=UNKNOWN"
            for name, address, port in zip(self.names, self.addresses, ports, strict=True)
        ]
        devices = f"{self.folder}/gpu[0-{GPUS_PER_NODE - 1}]"
        self.folder.joinpath("gres.conf").write_text(
            f"AutoDetect=off\nNodeName={','.join(self.names)} Name=gpu File={devices}\n"
        )
        # Slurm asks that the file of a device exists, no more; its number is the device's.
        for number in range(GPUS_PER_NODE):
            self.folder.joinpath(f"gpu{number}").touch()
        self._configuration.write_text(
            _CONFIGURATION.format(
                cluster=f"dlperf{self.worker}",
                machine=machine,
                controller_port=controller_port,
                user=getpass.getuser(),
                folder=self.folder,
                nodes="\n".join(nodes),
            )
        )
        for name in ("state", *(f"spool-{node}" for node in self.names)):
            self.folder.joinpath(name).mkdir()


def _is_of_slurm(process: Process) -> bool:
    return process.command.startswith("slurmstepd")

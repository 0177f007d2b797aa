"""Hosts that are reached by ssh: an sshd each, with keys and configuration of their own."""

from __future__ import annotations

import getpass
import os
import secrets
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from clusters.processes import (
    LONG_S,
    Process,
    Server,
    descendants_of,
    end,
    processes_with,
)
from clusters.requirements import command, required

# What the environment of everything that runs on a host carries, by the sshd of that host.
MARKER = "DLPERF_TEST_HOST"

_PRIVILEGE_SEPARATION = Path("/run/sshd")

_SERVER_CONFIGURATION = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
AuthenticationMethods publickey
PermitRootLogin prohibit-password
# The folder lies below one that everybody may write to.
StrictModes no
UsePAM {pam}
UseDNS no
PermitUserRC no
PrintMotd no
PrintLastLog no
PidFile none
MaxStartups 500
MaxSessions 500
KexAlgorithms curve25519-sha256
Subsystem sftp internal-sftp
# A home of the host's own: nothing that the user's shell starts up with, and nothing changed there.
# The rest is of a training that the host takes part in: no program that is launched may take note.
SetEnv {marker} HOME={folder}/home-{address} TF_CONFIG=outer PADDLE_TRAINER_ID=7 SLURM_NTASKS=64
LogLevel VERBOSE
"""

_CLIENT_CONFIGURATION = """\
Host {pattern}
    Port {port}
    User {user}
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PreferredAuthentications publickey
    KexAlgorithms curve25519-sha256
"""


@dataclass(slots=True, kw_only=True)
class SshHosts:
    """Hosts with an sshd each; ``prefixes`` is what starts a program on a host of that name."""

    folder: Path
    names: list[str]
    port: int
    prefixes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    controller_prefix: list[str] = field(default_factory=list)
    _servers: dict[str, Server] = field(default_factory=dict)
    _token: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def ssh_command(self) -> str:
        """The ssh command that reaches the hosts, as a user would write it."""
        return shlex.join([command("ssh"), "-F", str(self._client_configuration)])

    @property
    def _client_configuration(self) -> Path:
        return self.folder / "ssh_config"

    def log(self, name: str) -> Path:
        """The file that the sshd of a host writes its log to."""
        return self.folder / f"sshd-{name}.log"

    def set_up(self) -> None:
        """Write keys and configuration and start every sshd."""
        required("ssh")
        if os.geteuid() == 0:
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, parents=True, exist_ok=True)
        for key in ("host_key", "user_key"):
            subprocess.run(
                [command("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key],
                cwd=self.folder,
                check=True,
            )
        self.folder.joinpath("user_key.pub").chmod(0o644)
        host_key = self.folder.joinpath("host_key.pub").read_text().strip()
        known = [name if self.port == 22 else f"[{name}]:{self.port}" for name in self.names]
        self.folder.joinpath("known_hosts").write_text(f"{','.join(known)} {host_key}\n")
        self._client_configuration.write_text(
            _CLIENT_CONFIGURATION.format(
                pattern=" ".join(self.names),
                port=self.port,
                user=getpass.getuser(),
                folder=self.folder,
            )
        )
        for name in self.names:
            self.folder.joinpath(f"home-{name}").mkdir()
            self.folder.joinpath(f"sshd_config-{name}").write_text(
                _SERVER_CONFIGURATION.format(
                    address=name,
                    port=self.port,
                    folder=self.folder,
                    pam="yes" if _account_is_locked() else "no",
                    marker=self._marker(name),
                )
            )
        self.start(*self.names)

    def start(self, *names: str) -> None:
        """Start the sshd of hosts that do not run, and wait until they listen."""
        stopped = [name for name in names if name not in self._servers]
        for name in stopped:
            self.log(name).write_text("")
            configuration = str(self.folder / f"sshd_config-{name}")
            sshd = [command("sshd"), "-D", "-f", configuration, "-E", str(self.log(name))]
            self._servers[name] = Server([*self.prefixes.get(name, ()), *sshd], self.log(name))
            self._servers[name].start()
        for name in stopped:
            # Looked for in the log, because a host may listen where this process cannot reach it.
            self._servers[name].wait_for(partial(self._listens, name))

    def server_pid(self, name: str) -> int:
        """The sshd of a host, below which all that is started there runs."""
        return self._servers[name].pid

    def disconnect(self, name: str) -> None:
        """End all connections to a host, at its side; what they had started is left alone."""
        below = descendants_of(self._servers[name].pid)
        end(process for process in below if process.command.startswith("sshd"))

    def stop(self, name: str) -> None:
        """End the sshd of a host with its connections; what they had started is left alone."""
        server = self._servers.pop(name)
        below = descendants_of(server.pid)
        server.stop()
        end(process for process in below if process.command.startswith("sshd"))

    def processes(self, *names: str) -> list[Process]:
        """What was started by ssh on these hosts, or on any, and still runs."""
        markers = [self._marker(name) for name in names] or [f"{MARKER}={self._token}/"]
        return [process for marker in markers for process in processes_with(marker)]

    def arguments(self, name: str, *words: str) -> list[str]:
        """The whole command that runs a shell command on a host, from the controller."""
        return [*self.controller_prefix, *shlex.split(self.ssh_command), name, *words]

    def run(self, name: str, *words: str, limit_s: float = LONG_S) -> str:
        """Run a shell command on a host and give what it prints."""
        done = subprocess.run(
            self.arguments(name, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {words} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def reset(self) -> None:
        """End what a test has left running, and bring back the hosts that it has stopped."""
        end(self.processes())
        self.bring_up()

    def bring_up(self) -> None:
        """Bring back what a test has stopped, or ended with all that it had started."""
        for name in list(self._servers):
            if self._servers[name].runs():
                self.disconnect(name)
            else:
                del self._servers[name]
        self.start(*self.names)

    def tear_down(self) -> None:
        """End everything."""
        end(self.processes())
        for name in list(self._servers):
            self.stop(name)

    def _listens(self, name: str) -> bool:
        return f"Server listening on {name} port {self.port}." in self.log(name).read_text()

    def _marker(self, name: str) -> str:
        # With an end of its own: 10.11.0.2 is also how 10.11.0.20 begins.
        return f"{MARKER}={self._token}/{name}/"


def _account_is_locked() -> bool:
    """Whether sshd would refuse the account unless PAM is asked, which looks no further."""
    try:
        lines = Path("/etc/shadow").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith(f"{getpass.getuser()}:!") for line in lines)

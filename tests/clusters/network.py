"""Hosts in network namespaces, whose links can be cut as a switch or a cable fails."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from clusters.processes import LONG_S, PROC, Server
from clusters.requirements import command, required
from clusters.ssh import SshHosts

_BRIDGE = "switch"


@dataclass(slots=True)
class Network:
    """Hosts with an sshd each and a controller, joined by a bridge that the controller holds.

    The namespaces have no names and live as long as a process in them: nothing is left when the
    tests are killed, and the machine's own network sees nothing of it.
    """

    folder: Path
    subnet: int
    _holders: dict[str, Server] = field(default_factory=dict)
    _hosts: SshHosts | None = None

    @property
    def hosts(self) -> SshHosts:
        assert self._hosts is not None, "the network has not been set up"
        return self._hosts

    @property
    def names(self) -> list[str]:
        return [f"10.11.{self.subnet}.{number}" for number in range(2, 6)]

    @property
    def controller_address(self) -> str:
        return f"10.11.{self.subnet}.1"

    @property
    def controller_prefix(self) -> list[str]:
        """What to put before a command so that it runs at the controller."""
        return self._prefix("controller")

    @property
    def ssh_command(self) -> str:
        """The ssh command that reaches the hosts, from the controller."""
        return self.hosts.ssh_command

    def set_up(self) -> None:
        required("network")
        inside = [command("unshare"), "--net", "--", command("sleep"), "infinity"]
        for name in ("controller", *self.names):
            self._holders[name] = Server(inside, self.folder / f"holder-{name}.log")
            self._holders[name].start()
        ours = PROC.joinpath("self/ns/net").readlink()
        for holder in self._holders.values():
            # While a process is being started, its namespace is still ours.
            namespace = PROC / str(holder.pid) / "ns/net"
            holder.wait_for(partial(_differs, namespace, ours))
        self._link()
        self._hosts = SshHosts(
            folder=self.folder,
            names=self.names,
            port=22,
            prefixes={name: self._prefix(name) for name in self.names},
            controller_prefix=self.controller_prefix,
        )
        self._hosts.set_up()

    def cut(self, name: str) -> None:
        """Cut a host off: nothing passes and nobody is told."""
        self._ip("controller", f"link set {self._port(name)} down")

    def mend(self, name: str) -> None:
        """Join a host that was cut off; returns as soon as it can be reached."""
        self._ip("controller", f"link set {self._port(name)} up")
        # A failed look-up of the host's hardware address is remembered for a while.
        self._ip("controller", f"neigh flush dev {_BRIDGE}")
        self._ip(name, "neigh flush dev eth0")
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            with suppress(RuntimeError, subprocess.TimeoutExpired):
                self.hosts.run(name, "true", limit_s=2)
                return
        raise TimeoutError(f"{name} cannot be reached {LONG_S:g} s after its link was mended")

    def limit(self, name: str, *, megabits: int | None) -> None:
        """Limit what reaches and what leaves a host, each to so many Mbit/s; None: no more."""
        verb = "delete" if megabits is None else "replace"
        terms = "" if megabits is None else f" tbf rate {megabits}mbit burst 32kbit latency 400ms"
        for place, device in (("controller", self._port(name)), (name, "eth0")):
            words = f"qdisc {verb} dev {device} root{terms}".split()
            subprocess.run([*self._prefix(place), command("tc"), *words], check=True)

    def is_cut(self, name: str) -> bool:
        return "state UP" not in self._ip("controller", f"link show {self._port(name)}")

    def run(self, name: str, *words: str, limit_s: float = LONG_S) -> str:
        """Run a shell command on a host by ssh and give what it prints."""
        return self.hosts.run(name, *words, limit_s=limit_s)

    def reset(self) -> None:
        """End what a test has left running and mend what it has cut."""
        self.hosts.reset()
        for name in self.names:
            if self.is_cut(name):
                self.mend(name)

    def tear_down(self) -> None:
        """End everything; the namespaces and their links go with the last process in them."""
        if self._hosts is not None:
            self._hosts.tear_down()
        for holder in self._holders.values():
            holder.stop()

    def _link(self) -> None:
        lines = [
            "link set lo up",
            f"link add {_BRIDGE} type bridge forward_delay 0 stp_state 0",
            f"address add {self.controller_address}/24 dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        ]
        for name in self.names:
            port, holder = self._port(name), self._holders[name].pid
            lines += [
                f"link add {port} type veth peer name eth0 netns {holder}",
                f"link set {port} master {_BRIDGE} up",
            ]
        self._ip("controller", *lines)
        for name in self.names:
            self._ip(name, "link set lo up", f"address add {name}/24 dev eth0", "link set eth0 up")

    def _port(self, name: str) -> str:
        return f"port{name.rpartition('.')[2]}"

    def _prefix(self, name: str) -> list[str]:
        return [command("nsenter"), f"--net=/proc/{self._holders[name].pid}/ns/net", "--"]

    def _ip(self, name: str, *lines: str) -> str:
        done = subprocess.run(
            [*self._prefix(name), command("ip"), "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"ip at {name}: {done.stderr} of {lines}")
        return done.stdout


def _differs(link: Path, target: Path) -> bool:
    return link.readlink() != target

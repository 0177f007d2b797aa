"""A stand-in for a Kubernetes cluster, whose pods are processes of this machine.

A ``kubectl`` on the path hands its arguments and streams over (``clusters/kubectl.py``). Each pod
has an address on loopback. As in a container, all others end with a pod's first process.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from clusters.processes import Process, descendants_of, end, processes_with
from clusters.requirements import command

INDEX = "batch.kubernetes.io/job-completion-index"
# What a program is executed by, under its own name: it is no part of a pod, nor of the tests.
_SHIM_NAME, _SHIM = "containerd-shim", '"$@"; exit $?'
_CLIENT = Path(__file__).with_name("kubectl.py")


@dataclass(eq=False)
class Pod:
    """A pod, and the processes that it has."""

    name: str
    job: str
    index: int
    spec: dict[str, Any]
    node: str
    address: str
    first: subprocess.Popen[bytes] | None = None
    waits: dict[str, str] | None = None
    """Why it is not scheduled, or its container does not start."""
    ended: dict[str, Any] | None = None
    reason: dict[str, str] = field(default_factory=dict)
    executed: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def phase(self) -> str:
        if self.ended is not None:
            return "Failed" if self.ended["exitCode"] or self.reason else "Succeeded"
        return "Pending" if self.first is None else "Running"

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "POD": self.name}

    def told(self) -> dict[str, Any]:
        container = self.spec["containers"][0]["name"]
        state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        conditions = []
        if self.ended is not None:
            state = {"terminated": self.ended}
        elif self.first is not None:
            state = {"running": {}}
        elif self.waits is not None and self.waits["reason"] == "Unschedulable":
            conditions.append({"type": "PodScheduled", "status": "False", **self.waits})
            state = {}
        elif self.waits is not None:
            state = {"waiting": self.waits}
        return {
            "metadata": {"name": self.name, "annotations": {INDEX: str(self.index)}},
            "spec": {**self.spec, "nodeName": self.node},
            "status": {
                "phase": self.phase,
                "podIP": self.address,
                "conditions": conditions,
                "containerStatuses": [{"name": container, "state": state}] if state else [],
                **self.reason,
            },
        }

    def processes(self) -> list[Process]:
        """What runs in it, of which the first process is not counted."""
        below = [each for one in self.executed for each in descendants_of(one.pid)]
        found = [*below, *processes_with(f"POD={self.name}")]
        return list({each.pid: each for each in found}.values())

    def kill(self) -> None:
        if self.first is not None:
            self.first.kill()
            self.first.wait()
        while left := self.processes():
            end(left)


@dataclass(eq=False)
class Kubernetes:
    """The cluster; ``worker`` keeps its addresses apart from another's."""

    folder: Path
    worker: int
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    waits: dict[str, str] | None = None
    """What new pods wait for, instead of being started."""
    forbidden: set[str] = field(default_factory=set)
    """What nobody may do."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _server: _Server | None = None
    streams: list[socket.socket] = field(default_factory=list)

    # ------------------------------------------------------------------ its life

    def set_up(self) -> None:
        (self.folder / "bin").mkdir()
        client = self.folder / "bin" / "kubectl"
        client.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {_CLIENT} "$@"\n')
        client.chmod(0o755)
        server = self._server = _Server(str(self.folder / "socket"), _Handler)
        server.cluster = self
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self._reconcile, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to reach this cluster."""
        return {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "CLUSTER_SOCKET": str(self.folder / "socket"),
        }

    def processes(self) -> list[Process]:
        """What runs in pods, beside what waits there."""
        first = {pod.first.pid for pod in self.pods.values() if pod.first is not None}
        found = [one for pod in list(self.pods.values()) for one in pod.processes()]
        return [one for one in found if one.pid not in first]

    def reset(self) -> None:
        """End and forget everything."""
        with self._lock:
            for pod in self.pods.values():
                pod.kill()
            self.pods.clear()
            self.jobs.clear()
            self.calls.clear()
            self.waits = None
            self.forbidden.clear()

    def tear_down(self) -> None:
        self.reset()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    # ------------------------------------------------------------------ what happens to pods

    def cut(self) -> None:
        """End all connections over which programs are executed."""
        for stream in self.streams:
            with suppress(OSError):  # it is over
                stream.shutdown(socket.SHUT_RDWR)

    def evict(self, index: int) -> None:
        """As a kubelet does whose node runs out of memory."""
        reason = {"reason": "Evicted", "message": "The node was low on resource: memory."}
        self._lose(index, reason, {"exitCode": 137, "reason": "Error"})

    def run_out_of_memory(self, index: int) -> None:
        """As the kernel does when a container uses more than it may."""
        self._lose(index, {}, {"exitCode": 137, "reason": "OOMKilled"})

    def _lose(self, index: int, reason: dict[str, str], ended: dict[str, Any]) -> None:
        with self._lock:
            [pod] = [one for one in self.pods.values() if one.index == index]
            pod.reason, pod.ended = reason, ended
            pod.kill()

    def _reconcile(self) -> None:
        """Do what the controllers and kubelets do, over and over."""
        while True:
            time.sleep(0.02)
            with self._lock:
                for pod in list(self.pods.values()):
                    self._advance(pod)

    def _advance(self, pod: Pod) -> None:
        is_deleted = pod.job not in self.jobs
        if is_deleted and pod.first is not None and pod.ended is None:
            pod.first.terminate()
        elif is_deleted:
            self.pods.pop(pod.name)
        elif pod.first is None and pod.waits is None:
            [container] = pod.spec["containers"]
            pod.first = subprocess.Popen(
                container["command"], env=pod.environment, start_new_session=True
            )
        if pod.first is not None and pod.ended is None and pod.first.poll() is not None:
            pod.kill()
            pod.ended = {"exitCode": 0, "reason": "Completed"}

    # ------------------------------------------------------------------ what kubectl asks for

    def create(self, body: dict[str, Any]) -> str:
        name, spec = body["metadata"]["name"], body["spec"]
        with self._lock:
            self.jobs[name] = body
            for index in range(spec["completions"]):
                pod = Pod(
                    name=f"{name}-{index}-{secrets.token_hex(3)}",
                    job=name,
                    index=index,
                    spec=spec["template"]["spec"],
                    node=f"worker-{index}",
                    address=f"127.1.{self.worker}.{index + 2}",
                    waits=self.waits,
                )
                self.pods[pod.name] = pod
        return f"job.batch/{name} created\n"

    def get(self, job: str) -> str:
        with self._lock:
            found = [pod.told() for pod in self.pods.values() if pod.job == job]
        return json.dumps({"kind": "List", "items": found})

    def execute(self, pod: Pod, program: list[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            process = subprocess.Popen(
                [_SHIM_NAME, "-c", _SHIM, "sh", *program],
                executable=command("sh"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=pod.environment,
                cwd="/",
                start_new_session=True,
            )
            pod.executed.append(process)
        return process


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    cluster: Kubernetes


class _Handler(socketserver.StreamRequestHandler):
    """One call of kubectl."""

    server: _Server

    def handle(self) -> None:
        words = json.loads(self.rfile.readline())
        cluster = self.server.cluster
        cluster.calls.append(words[0])
        options = dict(word.lstrip("-").partition("=")[::2] for word in words if "=" in word)
        with suppress(OSError):
            if words[0] in cluster.forbidden:
                self._refuse(f'Error from server (Forbidden): "{words[0]}" is forbidden')
            elif words[0] == "exec":
                self._exec(words)
            elif words[0] == "create":
                self._answer(cluster.create(json.loads(self.rfile.read())))
            elif words[0] == "get":
                self._answer(cluster.get(options["selector"].partition("=")[2]))
            else:
                cluster.jobs.pop(words[2], None)
                self._answer("")

    def _answer(self, text: str) -> None:
        self._send(1, text.encode())
        self._end(0)

    def _refuse(self, text: str) -> None:
        self._send(2, f"{text}\n".encode())
        self._end(1)

    def _exec(self, words: list[str]) -> None:
        at = words.index("--")
        pod = self.server.cluster.pods.get(words[at - 1])
        if pod is None or pod.phase != "Running":
            self._refuse("error: unable to upgrade connection: container not found")
            return
        process = self.server.cluster.execute(pod, words[at + 1 :])
        assert process.stdin and process.stdout and process.stderr  # noqa: PT018 - for the types
        self.server.cluster.streams.append(self.connection)
        threading.Thread(target=self._give, args=(process.stdin,), daemon=True).start()
        errors = threading.Thread(target=self._take, args=(2, process.stderr), daemon=True)
        errors.start()
        self._take(1, process.stdout)
        errors.join()
        self._end(process.wait())

    def _give(self, stdin: IO[bytes]) -> None:
        with suppress(OSError), stdin:
            while data := self.rfile.read1(65536):
                stdin.write(data)
                stdin.flush()

    def _take(self, kind: int, output: IO[bytes]) -> None:
        with output:
            while data := os.read(output.fileno(), 65536):
                with suppress(OSError):
                    self._send(kind, data)

    def _send(self, kind: int, data: bytes) -> None:
        self.connection.sendall(struct.pack("!ii", kind, len(data)) + data)

    def _end(self, code: int) -> None:
        self.connection.sendall(struct.pack("!ii", 0, code % 256))

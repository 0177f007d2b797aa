"""A stand-in for a Kubernetes cluster: the calls that are used, over HTTP, with real processes.

Pods are processes of this machine, and share its files. Each has an address on loopback, and its
own ``/etc/hosts``, which knows all pods of its job by the names that a headless service would give
them. As in a container, all others end with a pod's first process.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from clusters.processes import Process, descendants_of, end
from clusters.requirements import command, required

NAMESPACE = "bench"
INDEX = "batch.kubernetes.io/job-completion-index"
_PART = "jobset.sigs.k8s.io/replicatedjob-name"
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: fake, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{}}}}]
contexts: [{{name: fake, context: {{cluster: fake, user: me, namespace: {namespace}}}}}]
current-context: fake
"""
# Stands before a pod's program: its own names of other pods.
_BEGIN = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
# What a container is started by, under its own name: it is no part of a pod, nor of the tests.
_SHIM = '"$@"; exit $?'


@dataclass(eq=False)
class Pod:
    """A pod, and the process that it is."""

    name: str
    owner: str
    index: int
    labels: dict[str, str]
    spec: dict[str, Any]
    hostname: str
    node: str
    address: str
    process: subprocess.Popen[bytes] | None = None
    waits: dict[str, str] | None = None
    """Why it is not scheduled, or its container does not start."""
    ended: dict[str, Any] | None = None
    reason: dict[str, str] = field(default_factory=dict)
    leaves_at: float | None = None
    lines: list[tuple[float, bytes]] = field(default_factory=list)
    is_read: bool = False

    @property
    def phase(self) -> str:
        if self.ended is not None:
            return "Failed" if self.ended["exitCode"] or self.reason else "Succeeded"
        return "Pending" if self.process is None else "Running"

    def told(self) -> dict[str, Any]:
        container = self.spec["containers"][0]["name"]
        state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
        conditions = []
        if self.ended is not None:
            state = {"terminated": self.ended}
        elif self.process is not None:
            state = {"running": {}}
        elif self.waits is not None and self.waits["reason"] == "Unschedulable":
            conditions.append({"type": "PodScheduled", "status": "False", **self.waits})
            state = {}
        elif self.waits is not None:
            state = {"waiting": self.waits}
        return {
            "metadata": {
                "name": self.name,
                "labels": self.labels,
                "annotations": {INDEX: str(self.index)},
            },
            "spec": {**self.spec, "nodeName": self.node},
            "status": {
                "phase": self.phase,
                "conditions": conditions,
                "containerStatuses": [{"name": container, "state": state}] if state else [],
                **self.reason,
            },
        }


@dataclass(eq=False)
class Kubernetes:
    """The cluster; ``worker`` keeps its addresses apart from another's."""

    folder: Path
    worker: int
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    waits: dict[str, str] | None = None
    """What new pods wait for, instead of being started."""
    forbidden: set[str] = field(default_factory=set)
    """What nobody may read."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _cuts: int = 0
    _server: _Server | None = None

    # ------------------------------------------------------------------ its life

    def set_up(self) -> None:
        required("kubernetes")
        server = self._server = _Server(self)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self._reconcile, daemon=True).start()
        text = _KUBECONFIG.format(port=server.server_port, namespace=NAMESPACE)
        (self.folder / "kubeconfig").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to reach this cluster."""
        return {"KUBECONFIG": str(self.folder / "kubeconfig")}

    def processes(self) -> list[Process]:
        """What runs in pods."""
        running = [pod.process for pod in self.pods.values() if pod.process is not None]
        return [one for process in running for one in descendants_of(process.pid)]

    def reset(self) -> None:
        """End and forget everything."""
        with self._lock:
            for pod in self.pods.values():
                _kill(pod, signal.SIGKILL)
            self.pods.clear()
            self.objects.clear()
            self.calls.clear()
            self.waits = None
            self.forbidden.clear()

    def tear_down(self) -> None:
        self.reset()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    # ------------------------------------------------------------------ what happens to pods

    def cut_logs(self) -> None:
        """End all connections over which logs are followed."""
        self._cuts += 1

    def evict(self, index: int) -> None:
        """As a kubelet does whose node runs out of memory."""
        with self._lock:
            [pod] = [one for one in self.pods.values() if one.index == index]
            pod.reason = {"reason": "Evicted", "message": "The node was low on resource: memory."}
            _kill(pod, signal.SIGKILL)

    def create(self, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        with self._lock:
            if (plural, name) in self.objects:
                raise _RefusedError(409, f'{plural} "{name}" already exists')
            body["metadata"]["uid"] = secrets.token_hex(8)
            self.objects[plural, name] = body
            if plural != "services":
                self._make_pods(plural, name, body["spec"])
        return body

    def _make_pods(self, plural: str, name: str, spec: dict[str, Any]) -> None:
        group = name
        label = {"jobset.sigs.k8s.io/jobset-name": name}
        if plural == "trainjobs":
            trainer = spec["trainer"]
            container = {"name": "node", **{k: trainer[k] for k in ("command", "env")}}
            job = {
                "completions": trainer["numNodes"],
                "template": {"spec": {"containers": [container]}},
            }
            group = f"{name}-node-0"
            label[_PART] = "node"
        elif plural == "jobsets":
            [replicated] = spec["replicatedJobs"]
            job = replicated["template"]["spec"]
            group = f"{name}-{replicated['name']}-0"
            label[_PART] = replicated["name"]
        else:
            job = spec
            label = {"batch.kubernetes.io/job-name": name}
        pod_spec = job["template"]["spec"]
        for index in range(job["completions"]):
            pod = Pod(
                name=f"{group}-{index}-{secrets.token_hex(3)}",
                owner=name,
                index=index,
                labels={**label, INDEX: str(index)},
                spec=pod_spec,
                hostname=f"{group}-{index}.{name}",
                node=f"worker-{index}",
                address=f"127.1.{self.worker}.{index + 2}",
                waits=self.waits,
            )
            self.pods[pod.name] = pod

    def _reconcile(self) -> None:
        """Do what the controllers and kubelets do, over and over."""
        while True:
            time.sleep(0.02)
            with self._lock:
                for pod in list(self.pods.values()):
                    self._advance(pod)
                for (plural, name), body in list(self.objects.items()):
                    if plural != "services":
                        self._advance_job(plural, name, body)

    def _advance(self, pod: Pod) -> None:
        if pod.process is None and pod.waits is None and pod.leaves_at is None:
            self._start(pod)
        if pod.process is not None and pod.ended is None and pod.is_read:
            code = pod.process.poll()
            if code is not None:
                pod.ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error"}
                if code == 0:
                    pod.ended["reason"] = "Completed"
        if pod.leaves_at is not None:
            if pod.process is None or pod.ended is not None:
                self.pods.pop(pod.name, None)
            elif time.monotonic() > pod.leaves_at:
                _kill(pod, signal.SIGKILL)

    def _advance_job(self, plural: str, name: str, body: dict[str, Any]) -> None:
        pods = [pod for pod in self.pods.values() if pod.owner == name]
        if "deletionTimestamp" in body["metadata"]:
            self._leave(pods)
            if not pods:
                del self.objects[plural, name]
                for key, other in list(self.objects.items()):
                    owners = other["metadata"].get("ownerReferences", ())
                    if any(owner["uid"] == body["metadata"]["uid"] for owner in owners):
                        del self.objects[key]
        elif any(pod.phase == "Failed" for pod in pods):
            condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
            body["status"] = {"conditions": [condition]}
            self._leave([pod for pod in pods if pod.phase in ("Pending", "Running")])

    def _leave(self, pods: list[Pod]) -> None:
        for pod in pods:
            if pod.leaves_at is None:
                grace_s = pod.spec.get("terminationGracePeriodSeconds", 30)
                pod.leaves_at = time.monotonic() + grace_s
                _kill(pod, signal.SIGTERM)

    def _start(self, pod: Pod) -> None:
        siblings = [one for one in self.pods.values() if one.owner == pod.owner]
        hosts = self.folder / f"hosts-{pod.owner}"
        if not hosts.exists():
            lines = [f"{one.address} {one.hostname}\n" for one in siblings]
            hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))
        [container] = pod.spec["containers"]
        environment = {
            "PATH": os.environ["PATH"],
            "JOB_COMPLETION_INDEX": str(pod.index),
            **{one["name"]: _value(one, pod) for one in container["env"]},
        }
        pod.process = subprocess.Popen(
            [
                *("containerd-shim", "-c", _SHIM, "sh"),
                command("unshare"), "--mount", "sh", "-c", _BEGIN, "sh", str(hosts),
                *container["command"],
            ],
            executable=command("sh"),
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=_read, args=(pod,), daemon=True).start()

    # ------------------------------------------------------------------ logs

    def follow(self, pod: Pod, since: float, *, follow: bool) -> Any:
        """Give a log's lines with their times, as long as there may be more."""
        position, cuts = 0, self._cuts
        while True:
            is_over = pod.ended is not None or pod.name not in self.pods
            for moment, line in pod.lines[position:]:
                position += 1
                if moment >= since:
                    stamp = datetime.fromtimestamp(moment, tz=UTC)
                    yield f"{stamp:%Y-%m-%dT%H:%M:%S.%f}000Z ".encode() + line
            if is_over or not follow or cuts != self._cuts:
                return
            time.sleep(0.02)


def _value(variable: dict[str, Any], pod: Pod) -> str:
    return str(variable.get("value", pod.node))


def _read(pod: Pod) -> None:
    """Take what a pod prints, line by line, as a container's runtime does."""
    assert pod.process is not None
    assert pod.process.stdout is not None
    with pod.process.stdout as output:
        for line in output:
            pod.lines.append((time.time(), line))
    pod.process.wait()
    pod.is_read = True


def _kill(pod: Pod, number: int) -> None:
    """Send a signal to the first process of a pod; the one that ends it ends all."""
    if pod.process is None or pod.process.poll() is not None:
        return
    below = descendants_of(pod.process.pid)
    if number == signal.SIGKILL:
        end(below)
        return
    for one in below:
        if one.parent == pod.process.pid:
            with suppress(ProcessLookupError):
                os.kill(one.pid, number)


class _RefusedError(Exception):
    """What the API server answers instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


_PATH = re.compile(
    rf"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/namespaces/{NAMESPACE}/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?P<log>/log)?)?"
)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cluster: Kubernetes) -> None:
        """Listen at any port."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster


class _Handler(BaseHTTPRequestHandler):
    """The API server."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        plural, name, is_log, query = self._asked()
        if f"{plural}/log" in self.server.cluster.forbidden and is_log:
            self._refuse(403, "pods/log is forbidden")
        elif is_log:
            self._send_log(name, query)
        elif plural == "pods":
            wanted = {tuple(label.split("=")) for label in query["labelSelector"].split(",")}
            pods = list(self.server.cluster.pods.values())
            found = [pod.told() for pod in pods if wanted <= set(pod.labels.items())]
            self._send(200, {"kind": "PodList", "items": found})
        elif (plural, name) in self.server.cluster.objects:
            self._send(200, self.server.cluster.objects[plural, name])
        else:
            self._refuse(404, f'{plural} "{name}" not found')

    def do_POST(self) -> None:
        plural, _, _, _ = self._asked()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self._send(201, self.server.cluster.create(plural, body))
        except _RefusedError as error:
            self._refuse(error.status, str(error))

    def do_DELETE(self) -> None:
        plural, name, _, _ = self._asked()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (plural, name) not in self.server.cluster.objects:
            self._refuse(404, f'{plural} "{name}" not found')
            return
        self.server.cluster.objects[plural, name]["metadata"]["deletionTimestamp"] = "now"
        self._send(200, {"kind": "Status", "status": "Success"})

    def _asked(self) -> tuple[str, str, bool, dict[str, str]]:
        url = urlsplit(self.path)
        found = _PATH.fullmatch(url.path)
        assert found is not None, self.path
        self.server.cluster.calls.append(f"{self.command} {found['plural']}{found['log'] or ''}")
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        return found["plural"], found["name"] or "", bool(found["log"]), query

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"kind": "Status", "status": "Failure", "message": message})

    def _send_log(self, name: str, query: dict[str, str]) -> None:
        pod = self.server.cluster.pods.get(name)
        if pod is None:
            self._refuse(404, f'pods "{name}" not found')
            return
        since = time.time() - float(query["sinceSeconds"]) if "sinceSeconds" in query else 0
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            for line in self.server.cluster.follow(
                pod, since, follow=query.get("follow") == "true"
            ):
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

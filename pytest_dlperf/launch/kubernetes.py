"""Kubernetes as a queue: the pods of a Job wait, and kubectl starts programs in them."""

from __future__ import annotations

import copy
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

from pytest_dlperf.config.cluster import Kubernetes
from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.files.masking import hide_variables
from pytest_dlperf.files.yamlfile import YamlError, load_plain
from pytest_dlperf.launch.allocations import (
    Allocation,
    Allocator,
    Holder,
    HostRequest,
    wait_for_hosts,
)
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher, output_of
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError

_MANAGED: Final = {"app.kubernetes.io/managed-by": "pytest-dlperf"}
_CASE: Final = "pytest-dlperf/case"
"""Annotation that names the case."""
_JOB: Final = "batch.kubernetes.io/job-name"
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_HOPELESS: Final = frozenset(
    {
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
"""Reasons for which a container waits that do not pass by themselves, or not soon."""

# The first process of a pod has no default for SIGTERM, and gets the children of all that end.
_WAITS: Final = (
    "import signal as s;s.signal(s.SIGCHLD,s.SIG_IGN);"
    "s.pthread_sigmask(s.SIG_BLOCK,{s.SIGTERM});s.sigwait({s.SIGTERM})"
)
_TEMPLATE: Final[dict[str, Any]] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {
        "ttlSecondsAfterFinished": 600,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "trainer",
                        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108 - a pod's own
                    }
                ],
                # The 64 MiB of a container are too little for NCCL and data loaders.
                "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
            }
        },
    },
}
"""The manifest of those who name none."""


class PodLauncher(Launcher):
    """Starts a node's program in a pod, by ``kubectl exec``."""

    name = "kubernetes"
    has_own_files = True

    def __init__(
        self, kubectl: Sequence[str], python: str, pods: Mapping[str, tuple[str, str]]
    ) -> None:
        """Reach ``pods`` and their containers, by the addresses of hosts."""
        super().__init__(python)
        self._kubectl = kubectl
        self._pods = pods

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """Give the command of the client."""
        del alongside
        pod, container = self._pods[host.address]
        where = ["--stdin", "--quiet", f"--container={container}", pod]
        return [*self._kubectl, "exec", *where, "--", *program]


class _Pod:
    """What the cluster says of one pod."""

    def __init__(self, told: dict[str, Any]) -> None:
        metadata, spec, status = told["metadata"], told["spec"], told.get("status") or {}
        self.name: str = metadata["name"]
        self.container: str = _trainer_of(spec["containers"])["name"]
        self.node: str = spec.get("nodeName", "")
        self.address: str = status.get("podIP", "")
        self.index = int((metadata.get("annotations") or {}).get(_INDEX, 0))
        states = {one["name"]: one.get("state") for one in status.get("containerStatuses") or []}
        state = states.get(self.container) or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
        conditions = {one["type"]: one for one in status.get("conditions") or []}
        unscheduled = conditions.get("PodScheduled", {})
        taken = conditions.get("DisruptionTarget", {})
        self.is_running = "running" in state and bool(self.address)
        self.waits = _reason_of(unscheduled if unscheduled.get("status") == "False" else waiting)
        """Why it does not run yet, if that is known."""
        ends = [
            _reason_of(status) if status.get("phase") in {"Failed", "Succeeded"} else "",
            _reason_of(taken) if taken.get("status") == "True" else "",
            _reason_of(terminated),
            _reason_of(waiting) if waiting.get("reason") in _HOPELESS else "",
        ]
        self.end = "; ".join(dict.fromkeys(filter(None, ends)))
        """Why it has ended, is about to, or will never run."""


@final
class KubernetesAllocator(Allocator):
    """Holds pods for each case in a cluster that kubectl reaches."""

    name = "kubernetes"
    has_own_files = True

    def __init__(self, settings: Kubernetes, folder: Path, python: str) -> None:
        """Ask by these settings, whose template lies in ``folder``."""
        super().__init__(python)
        self._settings = settings
        self._folder = folder
        chosen = {"context": settings.context, "namespace": settings.namespace}
        self._kubectl = ["kubectl", *(f"--{k}={value}" for k, value in chosen.items() if value)]

    @property
    def launcher(self) -> PodLauncher:
        """What starts programs in pods."""
        return PodLauncher(self._kubectl, self.python, {})

    @cached_property
    def _template(self) -> dict[str, Any]:
        named = self._settings.template
        return _TEMPLATE if named is None else _read_template(self._folder / named)

    def options(self, variables: LaunchVariables) -> dict[str, tuple[str, ...]]:
        """Give the image, and a digest of the manifest: it may hold secrets."""
        digest = hashlib.sha256(json.dumps(self._template).encode()).hexdigest()[:12]
        image = None if variables.container is not None else self._settings.image
        options = {"image": image, "device": self._settings.device, "template": digest}
        return {f"kubernetes.{name}": (text,) for name, text in options.items() if text}

    def describe(self, request: HostRequest) -> str:
        """Show the manifest as JSON, without the values of variables that are named as secrets."""
        manifest = self._manifest(request, "dlperf-NAME")
        for container in manifest["spec"]["template"]["spec"]["containers"]:
            for each in container.get("env") or []:
                if "value" in each:
                    each["value"] = hide_variables({each["name"]: str(each["value"])})[each["name"]]
        return json.dumps(manifest, indent=2)

    def acquire(self, request: HostRequest, say: Callable[[str], None]) -> Allocation:
        """Create a Job, and wait until all of its pods run."""
        name = f"dlperf-{uuid.uuid4().hex[:20]}"
        manifest = json.dumps(self._manifest(request, name))
        delete = ["delete", "job", name, "--ignore-not-found", "--wait=false"]
        holder = Holder([*self._kubectl, *delete])
        holder.submit([*self._kubectl, "create", "--filename=-"], manifest)
        pods = wait_for_hosts(lambda: self._look(name, request), request.wait_limit_s, say, holder)
        by_address = {pod.address: (pod.name, pod.container) for pod in pods}
        return Allocation(
            hosts=tuple(
                Host(name=pod.node, address=pod.address, devices=request.devices_per_node)
                for pod in pods
            ),
            launcher=PodLauncher(self._kubectl, self.python, by_address),
            limit_s=request.limit_s,
            handle=(name, [pod.name for pod in pods]),
            holder=holder,
        )

    def loss(self, allocation: Allocation) -> str | None:
        """Name the pods that have ended or are gone, and why."""
        job, names = allocation.handle
        try:
            pods = {pod.name: pod for pod in self._pods(job)}
        except BrokenError as error:
            return str(error)
        ends = {name: pods[name].end if name in pods else "it was deleted" for name in names}
        return "; ".join(f"pod {name}: {end}" for name, end in ends.items() if end) or None

    def _look(self, job: str, request: HostRequest) -> list[_Pod] | str:
        """Give the pods, by index, if all of them run; else say why one does not."""
        try:
            pods = self._pods(job)
        except BrokenError as error:
            return str(error)
        for pod in pods:
            if pod.end:
                raise BrokenError(f"pod {pod.name}: {pod.end}")
        if len(pods) == request.nodes and all(pod.is_running for pod in pods):
            return sorted(pods, key=lambda pod: pod.index)
        if waiting := [f"pod {pod.name}: {pod.waits}" for pod in pods if pod.waits]:
            return waiting[0]
        if pods:
            return f"the pods of job {job} are starting"
        return f"job {job} has no pods yet; kubectl describe job {job} says why"

    def _pods(self, job: str) -> list[_Pod]:
        asked = ["get", "pods", f"--selector={_JOB}={job}", "--output=json"]
        return list(map(_Pod, json.loads(output_of([*self._kubectl, *asked]))["items"]))

    def _manifest(self, request: HostRequest, name: str) -> dict[str, Any]:
        """Put a request into the template."""
        body = copy.deepcopy(self._template)
        pod: dict[str, Any] = {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(request.limit_s),
        }
        if request.hosts:
            here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [*request.hosts]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            pod["affinity"] = {"nodeAffinity": required}
        _merge(
            body,
            {
                "metadata": {
                    "name": name,
                    "labels": _MANAGED,
                    "annotations": {_CASE: request.purpose},
                },
                "spec": {
                    "completions": request.nodes,
                    "parallelism": request.nodes,
                    "completionMode": "Indexed",
                    "backoffLimit": 0,
                    # A Job's time counts from its beginning, while its pods may wait.
                    "activeDeadlineSeconds": int(request.wait_limit_s + request.limit_s),
                    "template": {"metadata": {"labels": _MANAGED}, "spec": pod},
                },
            },
        )
        container = _trainer_of(body["spec"]["template"]["spec"]["containers"])
        image = request.image or self._settings.image or container.get("image")
        if image is None:
            raise CannotMeasureError(
                f"{request.purpose} has no image to run in: name one under kubernetes.image in "
                "cluster.yaml, or with --dlperf-set '*.container.image=…'"
            )
        command = [self.python, "-I", "-S", "-c", _WAITS]
        _merge(container, {"command": command, "args": [], "image": image})
        if request.needs_devices:
            devices = {self._settings.device: str(request.devices_per_node)}
            _merge(container, {"resources": {"limits": devices}})
        return body


def _read_template(file: Path) -> dict[str, Any]:
    """Read the manifest that a user has named."""
    template: Any = load_plain(file)
    try:
        containers = template["spec"]["template"]["spec"]["containers"]
        is_job = template["kind"] == "Job" and all(one["name"] for one in containers)
    except (KeyError, IndexError, TypeError):
        is_job, containers = False, []
    if not (is_job and containers):
        raise YamlError.at(file, "is not a Job whose pod has containers, each with a name")
    found: dict[str, Any] = template
    return found


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Set what goes before all that a manifest says; a key may stand there without a value."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.setdefault(key, {}) or {}, dict):
            base[key] = base[key] or {}
            _merge(base[key], value)
        else:
            base[key] = value


def _trainer_of(containers: list[dict[str, Any]]) -> dict[str, Any]:
    """Find the container that trains: the one that is called ``trainer``, or else the first."""
    return next((one for one in containers if one["name"] == "trainer"), containers[0])


def _reason_of(told: Mapping[str, Any]) -> str:
    """Give a reason and its message, as far as they are there."""
    return ": ".join(filter(None, (told.get("reason"), told.get("message"))))

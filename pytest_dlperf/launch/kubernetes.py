"""Kubernetes as a queue: the pods of a Job wait, and kubectl starts programs in them."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

from msgspec import Struct, to_builtins

from pytest_dlperf.config.cluster import Kubernetes
from pytest_dlperf.config.launch_variables import LaunchVariables
from pytest_dlperf.files.masking import hide_variables
from pytest_dlperf.files.yamlfile import YamlError, load_plain
from pytest_dlperf.launch.allocations import (
    Allocation,
    Allocator,
    Holder,
    HostRequest,
    output_of,
    wait_for_hosts,
)
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
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
_SHOWN: Final = 60

# The first process of a pod has no default for SIGTERM, and gets the children of all that end.
_WAITS: Final = (
    "import signal as s;s.signal(s.SIGCHLD,s.SIG_IGN);"
    "s.pthread_sigmask(s.SIG_BLOCK,{s.SIGTERM});s.sigwait({s.SIGTERM})"
)


def _template() -> dict[str, Any]:
    """Make the manifest of those who name none."""
    return {
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


class PodLauncher(Launcher):
    """Starts a node's program in a pod, by ``kubectl exec``."""

    name = "kubernetes"
    has_own_files = True

    def __init__(
        self, kubectl: Sequence[str], python: str, pods: Mapping[str, tuple[str, str]]
    ) -> None:
        super().__init__(python)
        self._kubectl = kubectl
        self._pods = pods

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """Give the command of the client."""
        del alongside
        pod, container = self._pods[host.address]
        return [
            *self._kubectl,
            "exec",
            "--stdin",
            "--quiet",
            f"--container={container}",
            pod,
            "--",
            *program,
        ]


class _Pod(Struct, frozen=True, kw_only=True):
    """What the cluster says of one pod."""

    name: str
    container: str
    node: str
    address: str
    index: int
    is_running: bool
    waits: str
    """Why it does not run yet, if that is known."""
    is_hopeless: bool
    end: str
    """Why it has ended, or is about to, if it is."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> _Pod:
        """Read what the API has told of a pod."""
        metadata, spec, status = told["metadata"], told["spec"], told.get("status") or {}
        container = _trainer_of(spec["containers"])["name"]
        statuses = status.get("containerStatuses") or []
        own: dict[str, Any] = next((one for one in statuses if one["name"] == container), {})
        state = own.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        conditions = {one["type"]: one for one in status.get("conditions") or []}
        unscheduled = conditions.get("PodScheduled", {})
        taken = conditions.get("DisruptionTarget", {})
        ends = [
            _reason_of(status) if status.get("phase") in {"Failed", "Succeeded"} else "",
            _reason_of(taken) if taken.get("status") == "True" else "",
            _reason_of(terminated) if terminated else "",
        ]
        return cls(
            name=metadata["name"],
            container=container,
            node=spec.get("nodeName", ""),
            address=status.get("podIP", ""),
            index=int((metadata.get("annotations") or {}).get(_INDEX, 0)),
            is_running="running" in state and bool(status.get("podIP")),
            waits=_reason_of(unscheduled if unscheduled.get("status") == "False" else waiting),
            is_hopeless=waiting.get("reason") in _HOPELESS,
            end="; ".join(dict.fromkeys(filter(None, ends))),
        )


class _HeldJob(Struct, frozen=True, kw_only=True):
    name: str
    holder: Holder
    pods: list[str]


@final
class KubernetesAllocator(Allocator):
    """Holds pods for each case in a cluster that kubectl reaches."""

    name = "kubernetes"
    has_own_files = True

    def __init__(self, settings: Kubernetes, folder: Path, python: str) -> None:
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
    def _base(self) -> dict[str, Any]:
        named = self._settings.template
        return _template() if named is None else read_template(self._folder / named)

    def options(self, variables: LaunchVariables) -> dict[str, tuple[str, ...]]:
        """Give what ``cluster.yaml`` says of pods, and the manifest that it names, part by part."""
        said = {**to_builtins(self._settings), "template": None}
        if variables.container is not None:
            said["image"] = None  # its own goes before it
        if self._settings.template is not None:
            said["template"] = self._base
        return {name: (text,) for name, text in flattened("kubernetes", said)}

    def describe(self, request: HostRequest) -> str:
        """Show the manifest as JSON, which kubectl takes as well; long values are cut."""
        return json.dumps(_cut(self._manifest(request, "dlperf-NAME")), indent=2)

    def acquire(self, request: HostRequest, say: Callable[[str], None]) -> Allocation:
        """Create a Job, and wait until all of its pods run."""
        name = f"dlperf-{uuid.uuid4().hex[:20]}"
        manifest = json.dumps(self._manifest(request, name))
        holder = Holder(self._deletion(name))
        holder.submit([*self._kubectl, "create", "--filename=-"], manifest)
        try:
            pods = wait_for_hosts(lambda: self._look(name, request), request.wait_limit_s, say)
        except BaseException:
            with suppress(BrokenError):
                self._delete(name, holder)
            raise
        by_address = {pod.address: (pod.name, pod.container) for pod in pods}
        return Allocation(
            hosts=tuple(
                Host(name=pod.node, address=pod.address, devices=request.devices_per_node)
                for pod in pods
            ),
            launcher=PodLauncher(self._kubectl, self.python, by_address),
            limit_s=request.limit_s,
            handle=_HeldJob(name=name, holder=holder, pods=[pod.name for pod in pods]),
        )

    def release(self, allocation: Allocation) -> None:
        """Have the Job deleted, with its pods."""
        self._delete(allocation.handle.name, allocation.handle.holder)

    def loss(self, allocation: Allocation) -> str | None:
        """Name the pods that have ended or are gone, and why."""
        job: _HeldJob = allocation.handle
        try:
            pods = {pod.name: pod for pod in self._pods(job.name)}
        except BrokenError as error:
            return str(error)
        ends = {held: pods[held].end if held in pods else "it was deleted" for held in job.pods}
        return "; ".join(f"pod {held}: {end}" for held, end in ends.items() if end) or None

    # ------------------------------------------------------------------ the Job

    def _look(self, name: str, request: HostRequest) -> list[_Pod] | str:
        """Give the pods, by index, if all of them run; else say why one does not."""
        try:
            pods = self._pods(name)
        except BrokenError as error:
            return str(error)
        for pod in pods:
            if pod.is_hopeless or pod.end:
                raise BrokenError(f"pod {pod.name}: {pod.end or pod.waits}")
        if len(pods) == request.nodes and all(pod.is_running for pod in pods):
            return sorted(pods, key=lambda pod: pod.index)
        waiting = [f"pod {pod.name}: {pod.waits}" for pod in pods if pod.waits]
        if waiting:
            return waiting[0]
        if pods:
            return f"the pods of job {name} are starting"
        return f"job {name} has no pods yet; kubectl describe job {name} says why"

    def _pods(self, name: str) -> list[_Pod]:
        printed = output_of(
            [*self._kubectl, "get", "pods", f"--selector={_JOB}={name}", "--output=json"]
        )
        return list(map(_Pod.of, json.loads(printed)["items"]))

    def _deletion(self, name: str) -> list[str]:
        return [*self._kubectl, "delete", "job", name, "--ignore-not-found", "--wait=false"]

    def _delete(self, name: str, holder: Holder) -> None:
        try:
            output_of(self._deletion(name))
            holder.kill()
        finally:
            holder.close()

    def _manifest(self, request: HostRequest, name: str) -> dict[str, Any]:
        """Put a request into the template."""
        settings, body = self._settings, copy.deepcopy(self._base)
        metadata = body["metadata"] = body.get("metadata") or {}
        metadata["name"] = name
        queue = {} if settings.queue is None else {"kueue.x-k8s.io/queue-name": settings.queue}
        metadata["labels"] = {**metadata.get("labels", {}), **_MANAGED, **queue}
        metadata["annotations"] = {**metadata.get("annotations", {}), _CASE: request.purpose}
        spec = body["spec"]
        spec["completions"] = spec["parallelism"] = request.nodes
        spec["completionMode"] = "Indexed"
        spec["backoffLimit"] = 0
        # A Job's time counts from its beginning, while its pods may wait; a pod's does not.
        spec["activeDeadlineSeconds"] = int(request.wait_limit_s + request.limit_s)
        metadata = spec["template"]["metadata"] = spec["template"].get("metadata") or {}
        metadata["labels"] = {**metadata.get("labels", {}), **_MANAGED}
        pod = spec["template"]["spec"]
        pod["restartPolicy"] = "Never"
        pod["activeDeadlineSeconds"] = int(request.limit_s)
        if settings.node_selector:
            pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **settings.node_selector}
        if settings.service_account is not None:
            pod["serviceAccountName"] = settings.service_account
        if settings.image_pull_secrets:
            pod["imagePullSecrets"] = [{"name": each} for each in settings.image_pull_secrets]
        if request.hosts:
            pod["affinity"] = _only_on(request.hosts)
        self._set_container(pod, request)
        return body

    def _set_container(self, pod: dict[str, Any], request: HostRequest) -> None:
        settings, container = self._settings, _trainer_of(pod["containers"])
        container["command"] = [self.python, "-I", "-S", "-c", _WAITS]
        container["args"] = []
        image = request.image or settings.image
        if image is not None:
            container["image"] = image
        elif "image" not in container:
            raise CannotMeasureError(
                f"{request.purpose} has no image to run in: name one under kubernetes.image in "
                "cluster.yaml, or with --dlperf-set '*.container.image=…'"
            )
        count = str(request.devices_per_node)
        devices = {settings.device: count} if request.needs_devices else {}
        if limits := {**settings.resources, **devices}:
            own = container["resources"] = container.get("resources") or {}
            own["limits"] = {**own.get("limits", {}), **limits}
        for number, (path, volume) in enumerate(settings.volumes.items()):
            name = f"dlperf-{number}"
            mounts = container.setdefault("volumeMounts", [])
            # What the user says of a path goes before what the template says.
            mounts[:] = [mount for mount in mounts if mount["mountPath"] != path]
            mounts.append({"name": name, "mountPath": path})
            source: dict[str, Any] = {"emptyDir": {"medium": "Memory", "sizeLimit": volume.memory}}
            if volume.claim is not None:
                source = {"persistentVolumeClaim": {"claimName": volume.claim}}
            elif volume.host_path is not None:
                source = {"hostPath": {"path": volume.host_path}}
            pod.setdefault("volumes", []).append({"name": name, **source})


def read_template(file: Path) -> dict[str, Any]:
    """Read the manifest that a user has named.

    Raises:
        YamlError: It cannot be read, or is no Job with containers.
    """
    template: Any = _without_nothing(load_plain(file))
    found = template.get("kind") if isinstance(template, dict) else None
    if found != "Job":
        raise YamlError.at(file, f"is not a Job, but {found or 'no manifest'}")
    try:
        containers = template["spec"]["template"]["spec"]["containers"]
        is_whole = bool(containers) and all(container["name"] for container in containers)
    except (KeyError, IndexError, TypeError):
        is_whole = False
    if not is_whole:
        raise YamlError.at(
            file, "is a Job whose pod template declares no containers, each with a name"
        )
    checked: dict[str, Any] = template
    return checked


def flattened(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield what a manifest or settings say, each value by its path: ``spec.env.NCCL_DEBUG``.

    Of a list, parts that have a name are known by it.
    """
    if isinstance(value, dict):
        if set(value) == {"name", "value"}:
            yield f"{name}.{value['name']}", str(value["value"])
            return
        for key, part in value.items():
            yield from flattened(f"{name}.{key}", part)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            if not isinstance(part, dict) or "name" not in part:
                yield from flattened(f"{name}.{index}", part)
            elif set(part) == {"name", "value"}:
                yield from flattened(name, part)
            else:
                rest = {key: own for key, own in part.items() if key != "name"}
                yield from flattened(f"{name}.{part['name']}", rest)
    elif value is not None:
        yield name, str(value)


def _trainer_of(containers: list[dict[str, Any]]) -> dict[str, Any]:
    """Find the container that trains: the one that is called ``trainer``, or else the first."""
    return next((one for one in containers if one["name"] == "trainer"), containers[0])


def _reason_of(told: Mapping[str, Any]) -> str:
    """Give a reason and its message, as far as they are there."""
    return ": ".join(filter(None, (told.get("reason"), told.get("message"))))


def _only_on(hosts: Sequence[str]) -> dict[str, Any]:
    label = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [label]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _without_nothing(value: Any) -> Any:
    """Leave out keys without a value, as the API does."""
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items() if one is not None}
    return list(map(_without_nothing, value)) if isinstance(value, list) else value


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        name, of_variable = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(of_variable, str):
            value = {**value, "value": hide_variables({name: of_variable})[name]}
        return {key: _cut(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_cut(one) for one in value]
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]}… ({len(value)} characters)"
    return value

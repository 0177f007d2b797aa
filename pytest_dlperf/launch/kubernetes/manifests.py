"""Manifests of Kubernetes: a template, and what a run sets in it."""

from __future__ import annotations

import base64
import copy
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.config.kubernetes import JobKind
from pytest_dlperf.files.yamlfile import YamlError, load_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.config.kubernetes import Kubernetes
    from pytest_dlperf.launch.queue import Job

PARTS: Final = "DLPERF_PROGRAM_PARTS"
PART: Final = "DLPERF_PROGRAM_{}"
"""Environment variables that have the program of a job: a container has no file of ours."""
NODE_NAME: Final = "DLPERF_NODE_NAME"
"""Environment variable that tells a pod its node."""
CASE: Final = "pytest-dlperf/case"
"""Annotation that names the case of a run."""
_PART_BYTES: Final = 96 * 1024
"""The kernel takes no variable of more than 128 KiB."""
_MANAGED: Final = {"app.kubernetes.io/managed-by": "pytest-dlperf"}
_TEMPLATES: Final = Path(__file__).parent / "templates"

# Runs the program that is in the environment, and takes it out of there. What Kubernetes would put
# something in the place of, a dollar sign with a parenthesis, is not in it.
_START: Final = (
    "import os,zlib,base64;e=os.environ;"
    f"n=int(e.pop('{PARTS}'));"
    f"s=''.join(e.pop('{PART.format('%d')}'%i) for i in range(n));"
    "exec(compile(zlib.decompress(base64.b64decode(s)),'pytest-dlperf','exec'))"
)


class Resource(Struct, frozen=True):
    """A kind of object, as the API names it."""

    kind: str
    group: str
    version: str
    plural: str
    pods: str
    """Label by which an object's pods are found, its name behind it."""


RESOURCES: Final = {
    JobKind.JOB: Resource("Job", "batch", "v1", "jobs", "batch.kubernetes.io/job-name"),
    JobKind.JOB_SET: Resource(
        "JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", "jobset.sigs.k8s.io/jobset-name"
    ),
    # It makes a JobSet of its own name.
    JobKind.TRAIN_JOB: Resource(
        "TrainJob",
        "trainer.kubeflow.org",
        "v1alpha1",
        "trainjobs",
        "jobset.sigs.k8s.io/jobset-name",
    ),
}


REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
"""Label that names the part of a JobSet that a pod belongs to."""


def template_of(settings: Kubernetes, folder: Path) -> dict[str, Any]:
    """Read the manifest to begin with; a name of the user's own is relative to ``folder``.

    Raises:
        YamlError: It cannot be read, or is of another kind.
    """
    named = settings.template
    file = _TEMPLATES / f"{settings.kind.value}.yaml" if named is None else folder / named
    template = _without_nothing(load_plain(file))
    wanted = RESOURCES[settings.kind].kind
    found = template.get("kind") if isinstance(template, dict) else None
    if found != wanted:
        raise YamlError.at(
            file,
            f"is not a {wanted}, but {found or 'no manifest'}; 'kind' under 'kubernetes' in "
            "cluster.yaml says what a run is submitted as",
        )
    try:
        has_container = _has_container(template["spec"], settings.kind)
    except (KeyError, IndexError, TypeError):
        has_container = False
    if not has_container:
        raise YamlError.at(
            file, f"is a {wanted} whose pod template declares no containers, each with a name"
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


def manifest_of(
    template: dict[str, Any], settings: Kubernetes, job: Job, python: str
) -> dict[str, Any]:
    """Put a run into the template."""
    body = copy.deepcopy(template)
    metadata = body["metadata"] = body.get("metadata") or {}
    metadata["name"] = job.name
    queue = {} if settings.queue is None else {"kueue.x-k8s.io/queue-name": settings.queue}
    metadata["labels"] = {**metadata.get("labels", {}), **_MANAGED, **queue}
    metadata["annotations"] = {**metadata.get("annotations", {}), CASE: job.purpose}
    spec = body["spec"]
    command = [python, "-I", "-S", "-c", _START]
    if settings.kind is JobKind.TRAIN_JOB:
        _set_train_job(spec, settings, job, command)
    elif settings.kind is JobKind.JOB_SET:
        spec["network"] = {**spec.get("network", {}), "enableDNSHostnames": True}
        spec["failurePolicy"] = {"maxRestarts": 0}
        replicated = _replicated(spec)
        replicated["replicas"] = 1
        _set_job(replicated["template"]["spec"], settings, job, command)
    else:
        _set_job(spec, settings, job, command)
        spec["template"]["spec"]["subdomain"] = job.name
    return body


def service_of(job: Job, uid: str) -> dict[str, Any]:
    """Give what lets the pods of a Job find each other by name; it goes with the Job."""
    resource = RESOURCES[JobKind.JOB]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.name,
            "labels": dict(_MANAGED),
            "ownerReferences": [
                {
                    "apiVersion": f"{resource.group}/{resource.version}",
                    "kind": resource.kind,
                    "name": job.name,
                    "uid": uid,
                }
            ],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {resource.pods: job.name},
        },
    }


def names_of(
    template: dict[str, Any], settings: Kubernetes, name: str, nodes: int
) -> Sequence[str]:
    """Give the names of the pods in the network, by index."""
    group = group_of(template, settings.kind)
    if group is None:
        return [f"{name}-{index}.{name}" for index in range(nodes)]
    return [f"{name}-{group}-0-{index}.{name}" for index in range(nodes)]


def group_of(template: dict[str, Any], kind: JobKind) -> str | None:
    """Name the part of a JobSet that trains; a Job has no parts."""
    if kind is JobKind.JOB:
        return None
    return "node" if kind is JobKind.TRAIN_JOB else _replicated(template["spec"])["name"]


def _without_nothing(value: Any) -> Any:
    """Leave out keys without a value, as the API does."""
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items() if one is not None}
    return list(map(_without_nothing, value)) if isinstance(value, list) else value


def _replicated(spec: dict[str, Any]) -> dict[str, Any]:
    """Find the part of a JobSet that trains: the one that is called ``node``, or else the first."""
    jobs: list[dict[str, Any]] = spec["replicatedJobs"]
    return next((one for one in jobs if one["name"] == "node"), jobs[0])


def _has_container(spec: dict[str, Any], kind: JobKind) -> bool:
    if kind is JobKind.TRAIN_JOB:
        return True  # its runtime has it
    job = _replicated(spec)["template"]["spec"] if kind is JobKind.JOB_SET else spec
    containers = job["template"]["spec"]["containers"]
    return bool(containers) and all(container["name"] for container in containers)


def _set_job(spec: dict[str, Any], settings: Kubernetes, job: Job, command: list[str]) -> None:
    spec["completions"] = spec["parallelism"] = job.nodes
    spec["completionMode"] = "Indexed"
    spec["backoffLimit"] = 0
    # A Job's time counts from its beginning, while its pods may wait for nodes; a pod's does not.
    spec["activeDeadlineSeconds"] = int(job.queue_limit_s + job.limit_s)
    pod_template = spec["template"]
    metadata = pod_template["metadata"] = pod_template.get("metadata") or {}
    metadata["labels"] = {**metadata.get("labels", {}), **_MANAGED}
    pod = pod_template["spec"]
    pod["restartPolicy"] = "Never"
    pod["activeDeadlineSeconds"] = int(job.limit_s)
    if settings.node_selector:
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **settings.node_selector}
    if settings.service_account is not None:
        pod["serviceAccountName"] = settings.service_account
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if job.hosts:
        pod["affinity"] = _only_on(job.hosts)
    _set_container(pod, settings, job, command)


def _set_container(pod: dict[str, Any], settings: Kubernetes, job: Job, command: list[str]) -> None:
    containers = pod["containers"]
    container = next((one for one in containers if one["name"] == "trainer"), containers[0])
    _set_program(container, settings, job, command, resources="resources")
    for number, volume in enumerate(settings.volumes):
        name = f"dlperf-{number}"
        mounts = container.setdefault("volumeMounts", [])
        # What the user says of a path goes before what the template says.
        mounts[:] = [mount for mount in mounts if mount["mountPath"] != volume.path]
        mounts.append({"name": name, "mountPath": volume.path})
        source: dict[str, Any] = {"emptyDir": {"medium": "Memory", "sizeLimit": volume.memory}}
        if volume.claim is not None:
            source = {"persistentVolumeClaim": {"claimName": volume.claim}}
        elif volume.host_path is not None:
            source = {"hostPath": {"path": volume.host_path}}
        pod.setdefault("volumes", []).append({"name": name, **source})


def _set_train_job(
    spec: dict[str, Any], settings: Kubernetes, job: Job, command: list[str]
) -> None:
    spec.setdefault("runtimeRef", {"name": settings.runtime})
    spec["activeDeadlineSeconds"] = int(job.queue_limit_s + job.limit_s)
    trainer = spec["trainer"] = spec.get("trainer") or {}
    trainer["numNodes"] = job.nodes
    _set_program(trainer, settings, job, command, resources="resourcesPerNode")


def _set_program(
    container: dict[str, Any], settings: Kubernetes, job: Job, command: list[str], *, resources: str
) -> None:
    """Set what a container runs, in which image, and with which of the ``resources``."""
    container["command"] = command
    container["args"] = []
    container["env"] = _environment(container.get("env", []), job)
    image = settings.image if job.container is None else job.container.image
    if image is not None:
        container["image"] = image
    devices = {settings.device: str(job.devices_per_node)} if job.needs_devices else {}
    if limits := {**settings.resources, **devices}:
        own = container[resources] = container.get(resources) or {}
        own["limits"] = {**own.get("limits", {}), **limits}


def _environment(own: list[dict[str, Any]], job: Job) -> list[dict[str, Any]]:
    packed = base64.b64encode(zlib.compress(job.program, 9)).decode("ascii")
    parts = [packed[at : at + _PART_BYTES] for at in range(0, len(packed), _PART_BYTES)]
    ours: list[dict[str, Any]] = [
        {"name": NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": PARTS, "value": str(len(parts))},
        *({"name": PART.format(number), "value": part} for number, part in enumerate(parts)),
    ]
    return [*own, *ours]


def _only_on(hosts: Sequence[str]) -> dict[str, Any]:
    label = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [label]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

"""Kubernetes as a queue: each run is a Job, a JobSet or a TrainJob, through the official client."""

from __future__ import annotations

import json
import os
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pytest_dlperf.config.kubernetes import JobKind, Kubernetes
from pytest_dlperf.files.masking import hide_variables
from pytest_dlperf.launch.kubernetes.followed_log import FollowedLog
from pytest_dlperf.launch.kubernetes.manifests import (
    NODE_NAME,
    REPLICATED_JOB,
    RESOURCES,
    flattened,
    group_of,
    manifest_of,
    names_of,
    service_of,
    template_of,
)
from pytest_dlperf.launch.kubernetes.pods import Pod, PodHistory
from pytest_dlperf.launch.queue import Queue, SilentQueueError
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.config.launch_variables import LaunchVariables
    from pytest_dlperf.launch.queue import Job, JobState

CALL_LIMIT_S: Final = (10, 30)
"""Seconds until the API server takes a connection, and until it answers."""
QUIET_S: Final = 300
"""A connection over which no line of a log comes for so long is made anew."""
LOGS_LIMIT_S: Final = 5.0
"""The last lines of a container that has ended may take so long to be here."""
_TOO_MANY: Final = 429
_NOT_FOUND: Final = 404
_STARTS: Final = 400
"""What asks for the log of a container that does not run yet is answered so."""
_SERVERS_FAULT: Final = 500
_BLOCK: Final = 65536
_KUBECONFIG: Final = "KUBECONFIG"
_SHOWN: Final = 60


class _SubmittedJob(Struct, kw_only=True):
    """A job that was submitted, and what is known of its pods."""

    job: Job
    seen: PodHistory
    pods: dict[int, Pod] = {}
    logs: dict[int, FollowedLog] = {}


@final
class KubernetesQueue(Queue):
    """Submits each run to a cluster that a kubeconfig names, or the one that this runs in."""

    name = "kubernetes"
    rank_variable = "JOB_COMPLETION_INDEX"
    host_variable = NODE_NAME
    shares_disk = False
    has_own_files = True

    def __init__(self, settings: Kubernetes, folder: Path, python: str) -> None:
        """Submit by these settings, whose files lie in ``folder``."""
        super().__init__(python)
        self._settings = settings
        self._folder = folder
        self._resource = RESOURCES[settings.kind]
        self._live: dict[str, _SubmittedJob] = {}

    @cached_property
    def _template(self) -> dict[str, Any]:
        return template_of(self._settings, self._folder)

    @cached_property
    def _api(self) -> _Api:
        return _Api(self._settings)

    def node_names(self, name: str, nodes: int) -> Sequence[str]:
        """Give the names of the pods in the network of the cluster."""
        return names_of(self._template, self._settings, name, nodes)

    def options(self, variables: LaunchVariables) -> dict[str, tuple[str, ...]]:
        """Give what ``cluster.yaml`` says of pods, and the manifest that it names, part by part."""
        said = {**to_builtins(self._settings), "template": None}
        if variables.container is not None:
            said["image"] = None  # its own goes before it
        if self._settings.template is not None:
            said["template"] = self._template
        return {name: (text,) for name, text in flattened("kubernetes", said)}

    def dry_run_text(self, job: Job) -> str:
        """Show the manifest as JSON, which kubectl takes as well; long values are cut."""
        return json.dumps(_cut(self._manifest(job)), indent=2)

    def submit(self, job: Job) -> str:
        """Create the object; that of a Job also gets what gives its pods their names."""
        manifest = self._manifest(job)
        self._live[job.name] = _SubmittedJob(job=job, seen=PodHistory(job.nodes))
        created = self._api.create(manifest)
        if self._settings.kind is JobKind.JOB:
            try:
                self._api.create_service(service_of(job, created["metadata"]["uid"]))
            except BrokenError:
                self._api.delete(job.name)
                raise
        return job.name

    def state(self, handle: str) -> JobState:
        """Ask for the object and its pods."""
        live = self._live[handle]
        told = self._api.read(handle)
        pods = list(map(Pod.of, self._api.pods(self._pods_of(handle))))
        live.pods = {pod.index: pod for pod in pods}
        state = live.seen.state(told, list(live.pods.values()))
        refused = [text for index, text in _problems(live) if live.logs[index].is_refused]
        # What a pod has to say comes by its log alone.
        return replace(state, broken=refused[0]) if refused else state

    def _pods_of(self, name: str) -> str:
        """Give the labels of the pods that train: other parts of a JobSet may have pods, too."""
        labels = f"{self._resource.pods}={name}"
        group = group_of(self._template, self._settings.kind)
        return labels if group is None else f"{labels},{REPLICATED_JOB}={group}"

    def logs(self, handle: str) -> bool:
        """Follow the logs of all pods that have one."""
        live = self._live[handle]
        for index, pod in list(live.pods.items()):
            if pod.has_started and index not in live.logs and index < live.job.nodes:
                live.logs[index] = self._followed(live, pod)
        return all(log.is_done for log in live.logs.values())

    def _followed(self, live: _SubmittedJob, pod: Pod) -> FollowedLog:
        def open_log(since_s: int | None, follow: bool) -> Iterator[bytes]:
            return self._api.log(pod.name, pod.container, since_s, follow=follow)

        def is_over() -> bool:
            now = live.pods.get(pod.index)
            return now is None or now.end is not None

        return FollowedLog(
            open_log,
            is_over,
            log=live.job.logs[pod.index],
            reports=live.job.reports[pod.index],
            job=live.job.name,
        )

    def close(self, handle: str) -> Sequence[str]:
        """Wait for the last lines, and say which logs lack some."""
        live = self._live.pop(handle)
        for log in live.logs.values():
            log.close(LOGS_LIMIT_S)
        return [text for _, text in _problems(live)]

    def cancel(self, handle: str) -> None:
        """Have the object deleted, with all that belongs to it."""
        self._api.delete(handle)

    def cancel_command(self, name: str) -> list[str]:
        """Give a command that deletes the object of this name."""
        settings = to_builtins(self._settings)
        chosen = {key: settings[key] for key in ("context", "namespace")}
        chosen["kind"] = self._settings.kind.value
        if files := os.environ.get(_KUBECONFIG):
            # The watchdog has another working directory.
            paths = files.split(os.pathsep)
            chosen[_KUBECONFIG] = os.pathsep.join(map(os.path.abspath, filter(None, paths)))
        return [sys.executable, "-m", __name__, name, json.dumps(chosen)]

    def _manifest(self, job: Job) -> dict[str, Any]:
        manifest = manifest_of(self._template, self._settings, job, self.python)
        if '"image"' not in json.dumps(manifest) and self._settings.kind is not JobKind.TRAIN_JOB:
            raise CannotMeasureError(
                f"{job.purpose} has no image to run in: name one under kubernetes.image in "
                "cluster.yaml, or with --dlperf-set '*.container.image=…'"
            )
        return manifest


def _problems(live: _SubmittedJob) -> list[tuple[int, str]]:
    return [
        (index, f"the log of node {index}: {log.problem}")
        for index, log in live.logs.items()
        if log.problem is not None
    ]


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


@final
class _Api:
    """The calls of the API that are needed; each failure is told as one of ours."""

    def __init__(self, settings: Kubernetes) -> None:
        """Read the kubeconfig, or what a pod has; make no call."""
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise CannotMeasureError(
                "the launcher kubernetes needs its client: pip install 'pytest-dlperf[kubernetes]'"
            ) from error
        self._resource = RESOURCES[settings.kind]
        namespace = None
        try:
            if _is_in_cluster() and settings.context is None:
                config.load_incluster_config()
                api = client.ApiClient()
                namespace = _own_namespace()
            else:
                api = config.new_client_from_config(context=settings.context)
                contexts, current = config.list_kube_config_contexts()
                named = {one["name"]: one for one in contexts}
                chosen = current if settings.context is None else named[settings.context]
                namespace = chosen["context"].get("namespace")
        except Exception as error:  # the client's own, and those of a file that is no kubeconfig
            raise CannotMeasureError(
                f"the launcher kubernetes finds no cluster: {error}; it uses KUBECONFIG or "
                "~/.kube/config, as kubectl does"
            ) from error
        self._namespace = settings.namespace or namespace or "default"
        self._core = client.CoreV1Api(api)
        self._objects = client.CustomObjectsApi(api)
        self._failure = client.ApiException

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self._called(
            self._objects.create_namespaced_custom_object, *self._kind(), manifest
        )
        return created

    def create_service(self, manifest: dict[str, Any]) -> None:
        self._called(
            self._core.create_namespaced_service, self._namespace, manifest, _preload_content=False
        )

    def read(self, name: str) -> dict[str, Any] | None:
        """Read an object; ``None`` where it is gone."""
        try:
            found: dict[str, Any] = self._called(
                self._objects.get_namespaced_custom_object, *self._kind(), name
            )
        except _NotFoundError:
            return None
        return found

    def pods(self, labels: str) -> list[dict[str, Any]]:
        response = self._called(
            self._core.list_namespaced_pod,
            self._namespace,
            label_selector=labels,
            _preload_content=False,
        )
        found: list[dict[str, Any]] = json.loads(response.data)["items"]
        return found

    def log(
        self, pod: str, container: str, since_s: int | None, *, follow: bool
    ) -> Iterator[bytes]:
        """Give a log as it comes; nothing where the pod is gone."""
        since = {} if since_s is None else {"since_seconds": since_s}
        try:
            response = self._called(
                self._core.read_namespaced_pod_log,
                pod,
                self._namespace,
                container=container,
                follow=follow,
                timestamps=True,
                limit_s=(CALL_LIMIT_S[0], QUIET_S),
                passing=(_STARTS,),
                _preload_content=False,
                **since,
            )
        except _NotFoundError:
            return
        try:
            yield from response.stream(_BLOCK)
        except OSError as error:
            raise SilentQueueError(str(error)) from error
        except Exception as error:  # urllib3's own, whose home is the client
            raise SilentQueueError(f"{type(error).__name__}: {error}") from error
        finally:
            response.close()

    def delete(self, name: str) -> None:
        try:
            self._called(
                self._objects.delete_namespaced_custom_object,
                *self._kind(),
                name,
                propagation_policy="Foreground",
            )
        except _NotFoundError:
            return

    def _kind(self) -> tuple[str, str, str, str]:
        one = self._resource
        return one.group, one.version, self._namespace, one.plural

    def _called(
        self,
        call: Any,
        *arguments: Any,
        limit_s: tuple[int, int] = CALL_LIMIT_S,
        passing: tuple[int, ...] = (),
        **named: Any,
    ) -> Any:
        """Make a call; what may work in a moment is a ``SilentQueueError``."""
        try:
            return call(*arguments, _request_timeout=limit_s, **named)
        except self._failure as error:
            message = _message(error)
            if error.status == _NOT_FOUND:
                raise _NotFoundError(message) from error
            status = error.status or _SERVERS_FAULT
            if status in (_TOO_MANY, *passing) or status >= _SERVERS_FAULT:
                raise SilentQueueError(message) from error
            raise BrokenError(message) from error
        except Exception as error:  # urllib3's own, whose home is the client
            raise SilentQueueError(f"the API server: {error}") from error


class _NotFoundError(BrokenError):
    """There is no such object."""


def _message(error: Any) -> str:
    """Say what the API server has against a call."""
    try:
        said = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        said = error.reason
    return f"the API server answers {error.status}: {said}"


def _is_in_cluster() -> bool:
    # In a pod, a user may have no home folder, which pathlib refuses.
    config = os.path.expanduser("~/.kube/config")  # noqa: PTH111
    has_config = _KUBECONFIG in os.environ or Path(config).exists()
    return "KUBERNETES_SERVICE_HOST" in os.environ and not has_config


def _own_namespace() -> str | None:
    file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def main(name: str, chosen: str) -> None:
    """Delete an object; as a program, for the watchdog."""
    given = json.loads(chosen)
    if (files := given.pop(_KUBECONFIG, None)) is not None:
        os.environ[_KUBECONFIG] = files
    given["kind"] = JobKind(given["kind"])
    _Api(Kubernetes(**given)).delete(name)


if __name__ == "__main__":
    main(*sys.argv[1:])

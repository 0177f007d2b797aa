"""What Kubernetes says of the pods of a job, in the words of a queue."""

from __future__ import annotations

from typing import Any, Final, final

from msgspec import Struct

from pytest_dlperf.launch.queue import JobState, NodeEnd, Phase

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
_USUAL: Final = frozenset({"Completed", "Error"})


class Pod(Struct, frozen=True, kw_only=True):
    """One pod of a job."""

    name: str
    index: int
    container: str
    has_started: bool
    """Whether there is a log."""
    is_over: bool
    waits: str
    """Why it does not run yet, if that is known."""
    is_hopeless: bool
    end: NodeEnd | None
    disruption: str
    """Why it is evicted, if it is."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Pod:
        """Read what the API has told of a pod."""
        metadata, spec, status = told["metadata"], told["spec"], told.get("status") or {}
        notes = metadata.get("annotations") or {}
        containers = [container["name"] for container in spec["containers"]]
        name = "trainer" if "trainer" in containers else containers[0]
        statuses = status.get("containerStatuses") or []
        own: dict[str, Any] = next((one for one in statuses if one["name"] == name), {})
        state = own.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        conditions = {
            one["type"]: one for one in status.get("conditions") or [] if one["type"] in _CONDITIONS
        }
        unscheduled = conditions.get("PodScheduled", {})
        waits = ""
        if unscheduled.get("status") == "False":
            waits = _reason_of(unscheduled)
        elif waiting:
            waits = _reason_of(waiting)
        taken = conditions.get("DisruptionTarget", {})
        is_over = status.get("phase") in {"Succeeded", "Failed"}
        return cls(
            name=metadata["name"],
            index=int(notes.get(_INDEX, (metadata.get("labels") or {}).get(_INDEX, 0))),
            container=name,
            has_started="running" in state or terminated is not None,
            is_over=is_over,
            waits=waits,
            is_hopeless=waiting.get("reason") in _HOPELESS,
            end=_end(metadata["name"], status, terminated) if is_over or terminated else None,
            disruption=_reason_of(taken) if taken.get("status") == "True" else "",
        )


_CONDITIONS: Final = ("PodScheduled", "DisruptionTarget")


def _reason_of(told: dict[str, Any]) -> str:
    """Give a reason and its message, as far as they are there."""
    return ": ".join(filter(None, (told.get("reason"), told.get("message"))))


def _end(pod: str, status: dict[str, Any], terminated: dict[str, Any] | None) -> NodeEnd:
    """Say how a pod has ended: evicted, for instance, or out of memory."""
    why = _reason_of(status)
    code = None
    if terminated is not None:
        code = int(terminated["exitCode"])
        if terminated.get("reason") not in _USUAL:
            why = "; ".join(filter(None, (why, _reason_of(terminated))))
    return NodeEnd(exit_code=code, reason=f"pod {pod}: {why}" if why else "")


@final
class PodHistory(Struct):
    """What was seen of a job's pods; some are gone before their end is seen."""

    nodes: int
    disruptions: dict[int, str] = {}
    had_pods: bool = False

    def state(self, job: dict[str, Any] | None, pods: list[Pod]) -> JobState:
        """Say how far a job is, by itself (``None``: it is gone) and by its pods."""
        self.had_pods = self.had_pods or bool(pods)
        for pod in pods:
            if pod.disruption:
                self.disruptions[pod.index] = f"pod {pod.name}: {pod.disruption}"
        ends = {pod.index: self._end_of(pod) for pod in pods if pod.end is not None}
        condition = _last_condition(job)
        why = "; ".join(dict.fromkeys(filter(None, (condition, *self.disruptions.values()))))
        if job is None and not pods:
            return JobState(phase=Phase.OVER, reason=why or "it was deleted", ends=ends)
        all_ended = len(pods) >= self.nodes and all(pod.is_over for pod in pods)
        if all_ended or (condition and all(pod.is_over for pod in pods)):
            return JobState(phase=Phase.OVER, reason=why, ends=ends)
        if len(pods) == self.nodes and all(pod.has_started for pod in pods):
            return JobState(phase=Phase.RUNNING, ends=ends)
        waiting = [pod for pod in pods if pod.waits]
        broken = next((_waits(pod) for pod in waiting if pod.is_hopeless), None)
        suspended = bool(job) and bool((job or {}).get("spec", {}).get("suspend"))
        if suspended:
            reason = "it is suspended, as Kueue does until there is room"
        elif waiting:
            reason = _waits(waiting[0])
        else:
            reason = "" if pods else "no pod was made yet: kubectl get events says why"
        is_scheduled = any(pod.has_started for pod in pods)
        phase = Phase.RUNNING if is_scheduled else Phase.QUEUED
        return JobState(phase=phase, reason=reason, broken=broken, ends=ends)

    def _end_of(self, pod: Pod) -> NodeEnd:
        end = pod.end or NodeEnd(exit_code=None)
        return NodeEnd(
            exit_code=end.exit_code, reason=end.reason or self.disruptions.get(pod.index, "")
        )


def _waits(pod: Pod) -> str:
    return f"pod {pod.name}: {pod.waits}"


def _last_condition(job: dict[str, Any] | None) -> str:
    """Give why a job says that it has failed."""
    conditions = ((job or {}).get("status") or {}).get("conditions") or []
    failed = [one for one in conditions if one["type"] == "Failed" and one["status"] == "True"]
    return _reason_of(failed[-1]) if failed else ""

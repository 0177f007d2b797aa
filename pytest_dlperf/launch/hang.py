"""Finds runs that hang: a rank from which more is needed shows no new step for too long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.logs.run_logs import RunLogs
    from pytest_dlperf.logs.throughput import LogReading

_RANKS_SHOWN: Final = 32
_LABEL_SHOWN: Final = 60


@final
@dataclass(slots=True, kw_only=True)
class HangRule:
    """Allows each rank so many seconds for its first step, and for each further one."""

    first_step_limit_s: float
    step_limit_s: float
    _last_seen: dict[tuple[int, str], tuple[int, float]] = field(default_factory=dict, init=False)

    def check(self, logs: RunLogs, *, now: float, started: float) -> str | None:
        """Say what hangs; ``None`` where nothing does."""
        readings = logs.readings
        self._last_seen = last_seen = self._seen(logs, now, started)
        none_yet = any(not step for step, _ in last_seen.values())
        if none_yet and now - started >= self.first_step_limit_s:
            shown = _shown_steps(readings)
            missing = "not every rank has shown a first step" if shown else "no first step"
            return f"{missing} within {self.first_step_limit_s:g} s{shown}"
        stuck = [
            rank
            for rank, (step, since) in last_seen.items()
            if step and now - since >= self.step_limit_s
        ]
        if stuck:
            alone = len(stuck) < len(last_seen)
            of = f" of {_listed([_name(*rank) for rank in stuck])}" if alone else ""
            return f"no new step{of} for {self.step_limit_s:g} s{_shown_steps(readings)}"
        return None

    def _seen(
        self, logs: RunLogs, now: float, started: float
    ) -> dict[tuple[int, str], tuple[int, float]]:
        """Find the last step of each rank from which more is needed, and when it was seen first."""
        seen = {}
        for rank, step in logs.awaited.items():
            known = self._last_seen.get(rank)
            if known is not None and known[0] == step:
                seen[rank] = known
            else:
                seen[rank] = step, now if step else started
        return seen


def _shown_steps(readings: Sequence[LogReading]) -> str:
    """Write the last step of each rank as the end of a message; nothing without a step."""
    steps = []
    for node, reading in enumerate(readings):
        seen = reading.steps
        for label, step in seen.last.items():
            reached = seen.awaited.get(label, step)
            behind = f" (all of its ranks: {reached})" if reached < step else ""
            steps.append((reached, node, label, f"{step}{behind}"))
    if not steps:
        return ""
    if len(readings) == 1 and not steps[0][2]:
        return f"; last step: {steps[0][3]}"
    # Where not all can be shown, those that are behind tell most.
    steps.sort(key=lambda each: (each[0], each[1], _natural(each[2])))
    left_out = steps[_RANKS_SHOWN:]
    steps = sorted(steps[:_RANKS_SHOWN], key=lambda each: (each[1], _natural(each[2])))
    shown = ", ".join(f"{_name(node, label)}: {text}" for _, node, label, text in steps)
    more = f", and {len(left_out)} more ranks" if left_out else ""
    return f"; last steps: {shown}{more}"


def _name(node: int, label: str) -> str:
    """Name a rank, or all ranks of a node where they do not name themselves."""
    if not label:
        return f"node {node}"
    label = label[:_LABEL_SHOWN]
    return f"node {node} {label}" if node else label


def _natural(label: str) -> tuple[int, str]:
    """Return a key that sorts rank 10 behind rank 9."""
    return len(label), label


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _RANKS_SHOWN} more" if len(names) > _RANKS_SHOWN else ""
    return ", ".join(names[:_RANKS_SHOWN]) + more

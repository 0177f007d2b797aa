"""The hosts that a queue gives to one process of a session, a case after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import final

from pytest_dlperf.launch.allocations import Allocation, Allocator, HostRequest
from pytest_dlperf.launch.preflight import Requirements
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError


@final
@dataclass(slots=True, eq=False)
class HeldHosts:
    """What is held of a queue; a node of its cluster has ``devices_per_node``, if that is known."""

    allocator: Allocator
    _: KW_ONLY
    devices_per_node: int | None
    wait_limit_s: float
    say: Callable[[str], None]
    _allocation: Allocation | None = field(default=None, init=False)
    _request: HostRequest | None = field(default=None, init=False)
    _until: float = field(default=0.0, init=False)

    def check_size(self, case: Case, *, accelerators: bool) -> None:
        """Raise ``CannotMeasureError`` if a node has too few devices for a case."""
        devices, there = case.topology.devices_per_node, self.devices_per_node
        if accelerators and there is not None and devices > there:
            raise CannotMeasureError(
                f"{case.id} needs nodes of {devices} devices; a node of this cluster has {there} "
                "(devices_per_node in cluster.yaml)"
            )

    def acquire(
        self, case: Case, needed: Requirements, limit_s: float, only: Sequence[str] = ()
    ) -> Allocation:
        """Have hosts for a case for so many seconds: with ``only`` these, in their order."""
        request = self._terms(case, needed, limit_s, only)
        given = self._allocation = self.allocator.acquire(request, self.say)
        self._request, self._until = request, time.monotonic() + given.limit_s
        return given

    def acquire_again(self, case: Case, needed: Requirements, only: Sequence[str]) -> Allocation:
        """Have the same hosts for as long again."""
        self.release()
        limit_s = 0.0 if self._request is None else self._request.limit_s
        return self.acquire(case, needed, limit_s, only)

    def release(self) -> None:
        """Give back what is held."""
        given, self._allocation = self._allocation, None
        if given is not None:
            try:
                self.allocator.release(given)
            except BrokenError as error:
                self.say(f"{self.allocator.name} does not take hosts back: {error}")

    def suffice(self, needed: Requirements, time_limit_s: float) -> bool:
        """Say whether the hosts are there for one more run of so many seconds."""
        is_long_enough = time.monotonic() + time_limit_s <= self._until
        return is_long_enough and self.are_for(needed) and self.loss() is None

    def are_for(self, needed: Requirements) -> bool:
        """Say whether the hosts were asked for by these options, and have this image."""
        asked = self._request
        return asked is not None and self._own_terms(needed) == (asked.options, asked.image)

    def loss(self) -> str | None:
        """Say why the queue has taken the hosts away, if it has."""
        return None if self._allocation is None else self.allocator.loss(self._allocation)

    def describe(self, case: Case, needed: Requirements, limit_s: float) -> str:
        """Show what the queue would be asked for."""
        return self.allocator.describe(self._terms(case, needed, limit_s, ()))

    def _terms(
        self, case: Case, needed: Requirements, limit_s: float, only: Sequence[str]
    ) -> HostRequest:
        options, image = self._own_terms(needed)
        return HostRequest(
            purpose=case.id,
            nodes=case.topology.nodes,
            devices_per_node=case.topology.devices_per_node,
            needs_devices=needed.accelerators,
            limit_s=limit_s,
            wait_limit_s=self.wait_limit_s,
            hosts=tuple(dict.fromkeys(only)),
            options=options,
            image=image,
        )

    def _own_terms(self, needed: Requirements) -> tuple[Mapping[str, tuple[str, ...]], str | None]:
        """Give the options of the queue, without its launcher's, and the image of its hosts."""
        takes = set(self.allocator.takes) - set(self.allocator.launcher.takes)
        options = {name: words for name, words in needed.engine.items() if name in takes}
        return options, needed.image if self.allocator.has_own_files else None

"""The ``steady`` estimator: per rank, by step number, samples over time after the warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_dlperf.logs.formats import Ranks
from pytest_dlperf.logs.ranked import RankedSteps
from pytest_dlperf.logs.shared import SharedSteps
from pytest_dlperf.logs.steps import Span

if TYPE_CHECKING:
    from pytest_dlperf.logs.contract import Estimate
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Window


class Collector(Protocol):
    """Takes from a log what an estimate needs, piece by piece."""

    @property
    def steps_found(self) -> int:
        """Steps that the log shows so far, also where they are too few."""

    @property
    def complete(self) -> bool:
        """Whether every rank has shown what the estimate needs: no later step can change it."""

    @property
    def warmup_steps(self) -> int:
        """How many steps a rank shows before the measured ones, settling included."""

    @property
    def window_steps(self) -> int:
        """How many steps a rank has to show: settling, warm-up and measured ones."""

    @property
    def slowest_step(self) -> int:
        """The last step that all ranks have reached, as far as they are told apart."""

    def last_steps(self) -> dict[str, int]:
        """The last step of each rank that has shown one, by a name such as ``rank 3``.

        Where ranks do not name themselves it is one step, the last of all, under the name ``""``.
        """

    def awaited(self) -> dict[str, int]:
        """The last step of each rank from which more is needed, by the names of ``last_steps``.

        Under ``""`` stands what all ranks without a name have reached: 0 while one is missing.
        """

    def feed(self, region: Region) -> int | None:
        """Take what the region holds; where in it the log has shown enough, or ``None``.

        Raises:
            BrokenContractError: The log breaks its contract.
        """

    def estimate(self) -> Estimate:
        """Compute the throughput of what was taken.

        Raises:
            BrokenContractError: Something is missing or wrong.
        """


def steady_collector(log_format: LogFormat, window: Window, case: Case) -> Collector:
    """Choose how steps are collected: rank by rank, or from ranks that look alike."""
    span = Span.of(log_format, window)
    if log_format.ranks is Ranks.ONE:
        return RankedSteps(log_format, span, case, ranks=1)
    if log_format.labels_ranks:
        return RankedSteps(log_format, span, case, ranks=case.topology.devices_per_node)
    return SharedSteps(log_format, span, case)

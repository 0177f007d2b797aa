"""Nothing of a run that was submitted is left: no process, and no job that may begin later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clusters.processes import wait_until
from fault_matrix.cell import run_cell
from fault_matrix.faults import fault as fault_named
from fault_matrix.places import by_kubernetes, by_sbatch
from fault_matrix.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from clusters.kubernetes import Kubernetes
    from clusters.slurm import Slurm


@pytest.mark.parametrize(
    "fault",
    ["SIGKILL of pytest", "SIGKILL of a supervisor and its guardian", "hang", "scancel"],
)
def test_nothing_of_a_job_of_slurm_is_left(fault: str, tmp_path: Path, slurm: Slurm) -> None:
    session = Session(folder=tmp_path, place=by_sbatch(slurm), patient=False)

    outcome = run_cell(session, fault_named(fault), follow=False)

    assert outcome is not None
    assert not outcome.problems()
    wait_until(lambda: not slurm.jobs(), what="the end of all jobs", limit_s=10)


def test_nothing_of_a_job_of_kubernetes_is_left(tmp_path: Path, kubernetes: Kubernetes) -> None:
    session = Session(folder=tmp_path, place=by_kubernetes(kubernetes), patient=False)

    outcome = run_cell(session, fault_named("SIGKILL of pytest"), follow=False)

    assert outcome is not None
    assert not outcome.problems()
    wait_until(lambda: not kubernetes.objects, what="the end of all jobs", limit_s=10)

"""What a trainer must not inherit: the variables of the tests, and of a training around them.

They would switch on coverage measurement, or make a whole run believe to be one rank of another.
That is what launchers set for each process they start. What people set to tune a trainer stays,
whatever it begins with: ``JAX_PLATFORMS``, ``OMPI_MCA_btl``, ``HOROVOD_TIMELINE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SLURM: Final = ("SLURM.*",)
"""What Slurm tells the processes of a job and of its steps."""
PMI: Final = ("PMI_.*", "PMIX_(?!MCA_).*")
"""How a process started by srun or mpirun finds the others of its own step or job."""

_FOREIGN: Final = (
    # pytest and its plugins
    "PYTEST_.*",
    "COV_CORE_.*",
    "COVERAGE_PROCESS_.*",
    # torchrun, and all that speaks as it does: DeepSpeed, Accelerate, Lightning, Kubeflow
    "(LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?RANK",
    "(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE",
    "(LOCAL|CROSS)_SIZE",
    "ROLE_NAME",
    "NNODES",
    "MASTER_(ADDR|PORT)",
    "TORCHELASTIC_.*",
    "PET_.*",
    # TensorFlow, Paddle, JAX, Horovod
    "TF_CONFIG",
    "PADDLE_(?!HOME|PDX_|NCCL_).*",
    "TRAINING_ROLE",
    "FLAGS_selected_.*",
    "JAX_COORDINATOR.*",
    "JAX_(NUM_PROCESSES|PROCESS_(COUNT|ID|INDEX)|LOCAL_PROCESS_ID|LOCAL_DEVICE_IDS)",
    "HOROVOD_((LOCAL_|CROSS_)?(RANK|SIZE)|GLOO_.*|HOSTNAME)",
    # MPI: Open MPI, MPICH and its kin, jsrun
    "OMPI_(?!MCA_|ALLOW_RUN_AS_ROOT).*",
    "OMPI_MCA_(ess|ess_base_.*|orte_.*|pmix|initial_wdir)",
    "HYDI_.*",
    "MPI_LOCAL(RANKID|NRANKS)",
    "MV2_COMM_WORLD_.*",
    "JSM_NAMESPACE_.*",
    *PMI,
    *SLURM,
)


def foreign_names(kept: Sequence[str]) -> str:
    """Give the expression of the whole names that a trainer must not inherit.

    ``kept`` are entries of the list above that belong to what the trainer is started by.
    """
    return "|".join(entry for entry in _FOREIGN if entry not in kept)

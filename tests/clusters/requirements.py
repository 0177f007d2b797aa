"""What a kind of cluster needs of the machine, and how to get what is missing."""

from __future__ import annotations

import os
import shutil

_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"

# Kind of cluster -> command -> the Debian package that has it.
COMMANDS = {
    "ssh": {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"},
    "network": {
        "sshd": "openssh-server",
        "ssh": "openssh-client",
        "ssh-keygen": "openssh-client",
        "ip": "iproute2",
        "nsenter": "util-linux",
        "unshare": "util-linux",
    },
    "mpi": {"mpirun": "openmpi-bin"},
    "podman": {"podman": "podman", "runc": "runc", "catatonit": "catatonit"},
    "slurm": {
        "munged": "munge",
        "slurmctld": "slurm-wlm",
        "slurmd": "slurm-wlm",
        "srun": "slurm-wlm",
        "salloc": "slurm-wlm",
        "sbatch": "slurm-wlm",
    },
}

_AS_ROOT = {
    "network": "network namespaces",
    "podman": "containers",
}


def find(name: str) -> str | None:
    """The path of a command; servers lie in folders that an ordinary user's PATH leaves out."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}")


def command(name: str) -> str:
    """The path of a command that has to be there.

    Raises:
        LookupError: It is not installed.
    """
    if (path := find(name)) is None:
        raise LookupError(f"{name} is not installed")
    return path


def missing(kind: str) -> str | None:
    """What this machine lacks for a kind of cluster and how to get it; None if it has all."""
    packages = {name: package for name, package in COMMANDS[kind].items() if find(name) is None}
    if packages:
        needed = " ".join(sorted(set(packages.values())))
        return f"needs {', '.join(packages)}: apt-get install --no-install-recommends {needed}"
    if kind in _AS_ROOT and os.geteuid() != 0:
        return f"needs root, to make {_AS_ROOT[kind]}: run the tests as root"
    return None


def required(kind: str) -> None:
    """Refuse to go on where something is missing.

    Raises:
        RuntimeError: What, and how to get it.
    """
    if (lack := missing(kind)) is not None:
        raise RuntimeError(f"the {kind} cluster of the tests {lack}")

"""Podman with a storage of its own, and images that hold a Python and nothing else."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clusters.processes import LONG_S
from clusters.requirements import command, find, required

# The limits that Podman asks for by itself are above those of many a machine that is one already,
# and so are the groups of processes that it makes.
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
"""
_STORAGE = """\
[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{folder}/state"
"""
# What the tests' trainers and the look at hosts import.
_IMPORTED = (
    "import faulthandler, fcntl, importlib.metadata, json, os, pathlib, re, signal, sys, time"
)
_TOOLS = ("sh", "sleep")


@dataclass(slots=True)
class Podman:
    """A Podman of the tests' own."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to use this Podman."""
        return {
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }

    def set_up(self) -> None:
        required("podman")
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        processes = min(4096, resource.getrlimit(resource.RLIMIT_NPROC)[1])
        (self.folder / "containers.conf").write_text(
            _CONTAINERS.format(files=files, processes=processes)
        )
        (self.folder / "storage.conf").write_text(_STORAGE.format(folder=self.folder))
        # Each has another version of a module; the accepted one trains faster.
        self._add_image("tested", {"speed": "__version__ = '2.0'"}, "TINY_SLOWER=1.25")
        self._add_image("accepted", {"speed": "__version__ = '1.0'"}, "TINY_SLOWER=1")

    def _add_image(self, name: str, modules: dict[str, str], *variables: str) -> None:
        """Make an image with this Python, with modules by their source, and with variables."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for file, inside in _files():
                tar.add(file.resolve(), inside, recursive=False)
            for module, source in modules.items():
                info = tarfile.TarInfo(f"{_library()}/{module}.py"[1:])
                info.size = len(source)
                tar.addfile(info, io.BytesIO(source.encode()))
            for folder in ("tmp", "proc", "sys", "dev", "etc"):
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                tar.addfile(info)
        changes = [f"--change=ENV {variable}" for variable in variables]
        self.run("import", "--quiet", *changes, "-", name, stdin=packed.getvalue())

    def run(self, *words: str, stdin: bytes = b"") -> str:
        """Run a command of Podman, and give what it prints."""
        done = subprocess.run(
            [command("podman"), *words],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=LONG_S,
            env={**os.environ, **self.environment},
        )
        if done.returncode:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr.decode()}")
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """The names of all containers that there are, running or not."""
        found = json.loads(self.run("ps", "--all", "--format=json"))
        return [name for each in found for name in each["Names"]]

    def reset(self) -> None:
        """Remove what a test has left running."""
        if self.containers():
            self.run("rm", "--all", "--force")

    def tear_down(self) -> None:
        """End and remove everything."""
        if (self.folder / "storage.conf").exists():
            self.run("rm", "--all", "--force")
            self.run("rmi", "--all", "--force")


def _library() -> str:
    return sysconfig.get_path("stdlib")


def _files() -> Iterator[tuple[Path, str]]:
    """List what this Python needs, and a few tools, with the places in an image."""
    python = (Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}").resolve()
    told = "print(*{getattr(m, '__file__', None) or '' for m in sys.modules.values()}, sep='\\n')"
    modules = _printed(str(python), "-I", "-S", "-c", f"{_IMPORTED}\n{told}").split()
    tools = [path for tool in _TOOLS if (path := find(tool))]
    binaries = [str(python), *tools, *(file for file in modules if file.endswith(".so"))]
    shared = {word for word in _printed("ldd", *binaries).split() if word.startswith("/")}
    for file in (str(python), *modules, *sorted(shared - {f"{one}:" for one in binaries})):
        yield Path(file), file[1:]
    yield python, "usr/bin/python3"
    for tool in tools:
        yield Path(tool), f"bin/{Path(tool).name}"


def _printed(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout

"""Looks at a host before anything runs there; a program that is sent to it.

The order is a JSON object on standard input, the answer one on standard output. Like the supervisor
it has to run on Python 3.6 and imports the standard library only.
"""

import contextlib
import glob
import json
import os
import re
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from typing import Any

NO_VERSION = "no version"

_TOOL_LIMIT_S = 8.0
_IMPORT_LIMIT_S = 40.0
_FACTS_LIMIT_S = 25.0
_KFD = "/sys/class/kfd/kfd/topology/nodes"

_PACKAGES = (
    "jax",
    "mxnet",
    "nvidia-cuda-runtime-cu11",
    "nvidia-cuda-runtime-cu12",
    "nvidia-nccl-cu11",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "oneflow",
    "paddlepaddle",
    "paddlepaddle-gpu",
    "tensorflow",
    "tensorflow-gpu",
    "torch",
)
"""Distributions whose versions are reported where the trainer's Python has them."""

# Runs on the trainer's own Python, which may be another one. A distribution's metadata is read in
# milliseconds; to import a framework takes seconds. What is only reported is never imported.
_VERSIONS = r"""
import importlib, json, os, re, sys
def of_metadata(name):
    try:
        from importlib.metadata import version
    except ImportError:  # below 3.8: the metadata's folder has the version in its name
        plain = re.sub("[-_.]+", "_", name).lower()
        for folder in sys.path:
            for entry in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
                found = re.match(r"(.+?)-([^-]+)(-py[0-9.]+)?\.(dist|egg)-info$", entry)
                if found and re.sub("[-_.]+", "_", found.group(1)).lower() == plain:
                    return found.group(2)
        raise
    return str(version(name))
modules, names = json.loads(sys.argv[1])
found, packages = {}, {}
for name in modules:
    try:
        found[name] = of_metadata(name)
    except Exception:
        try:
            module = importlib.import_module(name)
            found[name] = str(getattr(module, "__version__", "no version"))
        except Exception:
            found[name] = None
for name in names:
    try:
        packages[name] = of_metadata(name)
    except Exception:
        pass
print("dlperf-versions", json.dumps([found, packages]))
"""


def look(wanted: "dict[str, Any]") -> "dict[str, object]":
    """Look for the trainer's Python, for folders, files, and modules of that Python.

    ``wanted`` has the fields of ``Requirements``, and as ``lock`` the beginning of the names of the
    locks that runs hold on the host's devices.
    """
    # Beside the rest: a tool that hangs, even where no signal ends it, costs its own facts only.
    facts = {}  # type: dict[str, str]
    looking = threading.Thread(
        target=_find_facts, args=(facts, wanted["accelerators"]), daemon=True
    )
    facts_until = time.monotonic() + _FACTS_LIMIT_S
    looking.start()
    program, versions, packages = _versions(wanted["python"], wanted["modules"])
    folders, files = wanted["folders"].values(), wanted["files"].values()
    devices = _devices()
    used_by = [] if _is_locked(wanted["lock"].encode("latin-1")) else _used_by()
    looking.join(max(0.0, facts_until - time.monotonic()))
    return {
        "missing": [path for path in folders if not os.path.isdir(path)]  # noqa: PTH112 - no pathlib
        + [path for path in files if not os.path.isfile(path)],  # noqa: PTH113 - as above
        "python": program,
        "versions": versions,
        "packages": packages,
        "devices": devices,
        "used_by": used_by,
        "facts": {name: fact for name, fact in dict(facts).items() if fact},
    }


def _versions(
    python: str, modules: "list[str]"
) -> "tuple[str | None, dict[str, str | None], dict[str, str]]":
    """Find faults of the trainer's Python, and the versions of modules and packages in it."""
    try:
        done = subprocess.run(  # noqa: S603, UP022 - the user's own choice; 3.6 cannot else
            [python, "-c", _VERSIONS, json.dumps([modules, _PACKAGES])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_IMPORT_LIMIT_S,
            check=False,
        )
    except OSError as error:
        return os.strerror(error.errno or 0), {}, {}
    except subprocess.TimeoutExpired:
        at = f" at the import of {', '.join(modules)}" if modules else ""
        return f"no answer for {_IMPORT_LIMIT_S:g} s{at}", {}, {}
    printed = done.stdout.decode("utf-8", "replace")
    match = re.search(r"dlperf-versions (.*)", printed)
    if match is None:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        last = [line for line in lines if line.strip()][-1:]
        return "exit code {}: {}".format(done.returncode, "".join(last)), {}, {}
    found, packages = json.loads(match.group(1))
    return None, {str(name): found[name] for name in found}, packages


def _output(*command: str) -> "list[str] | None":
    """Return the lines that a command prints; ``None`` where it is not there or fails."""
    try:
        done = subprocess.run(  # noqa: S603 - tools of the system
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TOOL_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [line for line in done.stdout.decode("utf-8", "replace").split("\n") if line.strip()]


def _devices() -> int:
    """Count the accelerators of the machine: NVIDIA's by their tool, AMD's by the kernel."""
    listed = _output("nvidia-smi", "-L")
    if listed is not None:
        return len([line for line in listed if re.match(r"GPU \d+", line)])
    files = [name for name in glob.glob("/dev/nvidia*") if re.match(r"/dev/nvidia\d+$", name)]  # noqa: PTH207 - no pathlib
    if files:
        return len(files)
    numbers = [_text(file).strip() for file in glob.glob(_KFD + "/*/gpu_id")]  # noqa: PTH207 - as above
    return len([number for number in numbers if number not in {"", "0"}])


def _find_facts(found: "dict[str, str]", accelerators: bool) -> None:
    looks = [_processor_facts, _network_facts, _nccl_facts]
    if accelerators:
        looks += [_nvidia_facts, _cuda_facts, _nvlink_facts, _amd_facts]
    for look_at in looks:
        # No fact is worth a host: a tool may fail in ways that nobody has thought of.
        with contextlib.suppress(Exception):
            found.update(look_at())


def _processor_facts() -> "dict[str, str]":
    """Find the model and number of processors; the architecture where the kernel has no name."""
    with open("/proc/cpuinfo", errors="replace") as file:  # noqa: PTH123 - no pathlib
        lines = [line.partition(":") for line in file]
    names = {value.strip() for key, _, value in lines if key.strip() == "model name"}
    count = len([key for key, _, _ in lines if key.strip() == "processor"])
    return {
        "processor": " + ".join(sorted(names)) or os.uname().machine,
        "processors": str(count or os.cpu_count() or ""),
    }


def _network_facts() -> "dict[str, str]":
    for port in glob.glob("/sys/class/infiniband/*/ports/*"):  # noqa: PTH207 - as above
        if "ACTIVE" in _text(port + "/state") and "Ethernet" not in _text(port + "/link_layer"):
            return {"network": "infiniband"}
    return {"network": "ethernet"}


def _nccl_facts() -> "dict[str, str]":
    """Find the version of the system's NCCL, which is whole in its file's name."""
    for tool in ("ldconfig", "/sbin/ldconfig"):
        for line in _output(tool, "-p") or []:
            name, arrow, path = line.strip().partition(" => ")
            if arrow and name.startswith("libnccl.so"):
                version = re.search(r"libnccl\.so\.(\d+\.\d+\.\d+)", os.path.realpath(path))
                if version is not None:
                    return {"nccl": version.group(1)}
    return {}


def _nvidia_facts() -> "dict[str, str]":
    lines = _output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv") or []
    # Something else may bear the tool's name.
    if not lines or re.match(r"name, ?driver_version$", lines[0].strip()) is None:
        return {}
    shown = [line.rpartition(",") for line in lines[1:]]
    return {
        "device": " + ".join(sorted({name.strip() for name, _, _ in shown})),
        "driver": " + ".join(sorted({driver.strip() for _, _, driver in shown})),
    }


def _cuda_facts() -> "dict[str, str]":
    for line in _output("nvidia-smi") or []:
        version = re.search(r"CUDA Version: *(\d+(?:\.\d+)*)", line)
        if version is not None:
            return {"cuda": version.group(1)}
    return {}


def _nvlink_facts() -> "dict[str, str]":
    """Find what joins NVIDIA devices: NVLink where any two have it."""
    lines = _output("nvidia-smi", "topo", "-m") or []
    rows = [line for line in lines if re.match(r"GPU\d+\s", line)]
    if len(rows) < 2:  # noqa: PLR2004 - one is joined to none
        return {}
    joined = any(re.search(r"\sNV\d+\s", row + " ") for row in rows)
    return {"interconnect": "nvlink" if joined else "pcie"}


def _amd_facts() -> "dict[str, str]":
    """Find models and driver of AMD devices, as the kernel names them."""
    targets = set()
    for file in glob.glob(_KFD + "/*/properties"):  # noqa: PTH207 - as above
        number = re.search(r"^gfx_target_version (\d+)$", _text(file), re.MULTILINE)
        if number is not None and int(number.group(1)):
            major, minor, step = (int(number.group(1)) // n % 100 for n in (10000, 100, 1))
            targets.add(f"AMD gfx{major}{minor}{step:x}")
    if not targets:
        return {}
    driver = _text("/sys/module/amdgpu/version").strip()
    return {"device": " + ".join(sorted(targets)), "driver": driver}


def _text(file: str) -> str:
    try:
        with open(file, errors="replace") as opened:  # noqa: PTH123 - as above
            return opened.read()
    except OSError:
        return ""


def _used_by() -> "list[str]":
    query = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
    return _output(*query) or []


def _is_locked(start: bytes) -> bool:
    """Say whether another run of this tool goes on, which is what uses the devices.

    Only looked at: to try the lock would keep others from it.
    """
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:  # noqa: PTH123
        # The system writes the NUL in front of a name that lies in no folder as @.
        return any(line.split()[-1].startswith(b"@" + start[1:]) for line in file)
    return False


if __name__ == "__main__":
    sys.stdout.write("\ndlperf-probe " + json.dumps(look(json.loads(sys.stdin.read()))) + "\n")

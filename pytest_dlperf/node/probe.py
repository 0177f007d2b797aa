"""Looks at a host before anything runs there; a program that is sent to it.

The order is a JSON object on standard input, the answer one on standard output.
"""

import contextlib
import glob
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

from pytest_dlperf.node.accelerators import NOTHING, find_accelerators
from pytest_dlperf.node.checkouts import checkout_at
from pytest_dlperf.node.containers import digest_of, filled
from pytest_dlperf.node.host_tools import PROC, SYS, Later, output, text_of
from pytest_dlperf.node.processes import end_with_input

NO_VERSION = "no version"

FETCH_LIMIT_S = 1800.0
"""Seconds in which a host has to have fetched an image."""
_IMPORT_LIMIT_S = 40.0
_FACTS_LIMIT_S = 25.0

PACKAGES = (
    "accelerate|apex|bitsandbytes|datasets|deepspeed|flash-attn|habana-torch-plugin|horovod"
    "|intel-extension-for-pytorch|jax(-rocm7-plugin|lib)?|libtpu|(pytorch-)?lightning|megatron-core"
    "|mindspore|mpi4py|mxnet|numpy|nvidia-(cublas|cuda-runtime)(-cu[0-9]+)?|nvidia-nccl-cu[0-9]+"
    "|nvidia-cudnn-cu[0-9]+|nvidia-dali-cuda[0-9]+|oneflow|paddlepaddle(-gpu)?|tensorflow(-gpu)?"
    "|tokenizers|torch(-npu|-xla|ao|data|titan|vision)?|transformer-engine|transformers|triton"
    "|xformers"
)
"""Distributions whose versions are reported where the trainer's Python has them."""

# Runs on the trainer's own Python, which may be another one. The folder of a distribution names it
# and its version; to read its metadata takes milliseconds, to import a framework seconds.
_VERSIONS = r"""
import importlib, json, os, re, signal, sys
def look_at(place, entry):
    name, _, version = re.sub("(-py[0-9.]+)?[.](dist|egg)-info$", "", entry).partition("-")
    plain = re.sub("[-_.]+", "-", name).lower()
    if re.fullmatch(wanted, plain):
        packages.setdefault(plain, version)
    with open(os.path.join(place, entry, "direct_url.json")) as file:
        said = json.load(file)
    from urllib.parse import unquote, urlparse
    origin = urlparse(said["url"])
    if said["dir_info"]["editable"] and origin.scheme == "file":
        editables[name] = unquote(origin.path)
modules, wanted, folders, files, limit_s = json.loads(sys.argv[1])
signal.alarm(limit_s)
found, packages, editables = {}, {}, {}
missing = [path for path in folders if not os.path.isdir(path)]
missing += [path for path in files if not os.path.isfile(path)]
for name in modules:
    try:
        from importlib.metadata import version
        found[name] = str(version(name))
    except Exception:
        try:
            module = importlib.import_module(name)
            found[name] = str(getattr(module, "__version__", "no version"))
        except Exception:
            found[name] = None
for place in filter(os.path.isdir, sys.path):
    for entry in os.listdir(place):
        if re.search("[.](dist|egg)-info$", entry):
            try:
                look_at(place, entry)
            except Exception:
                pass
looked = {"versions": found, "packages": packages, "missing": missing, "editables": editables}
print("dlperf-versions", json.dumps(looked))
"""


def look(wanted: "dict[str, Any]") -> "dict[str, object]":
    """Look for the trainer's Python, for folders, files, and modules of that Python.

    ``wanted`` has the fields of ``Requirements``, and as ``lock`` the beginning of the names of the
    locks that runs hold on the host's devices.
    """
    facts_until = time.monotonic() + _FACTS_LIMIT_S
    facts = [Later(look_at) for look_at in (_processor_facts, _network_facts, _firmware_facts)]
    checkouts = {name: Later(checkout_at, path) for name, path in wanted["checkouts"].items()}
    devices = None
    if wanted["accelerators"]:
        devices = Later(find_accelerators, wanted["kind"], facts_until)
    lock = wanted["lock"].encode("latin-1")
    is_locked = _is_locked(lock)
    inside = wanted["inside"]
    trainers = _trainers(wanted)
    if inside is None:
        checkouts.update({n: Later(checkout_at, path) for n, path in trainers["editables"].items()})
    found = dict(devices.result(facts_until + 1.0, NOTHING) if devices else NOTHING)
    for each in facts:
        found["facts"] = dict(each.result(facts_until, {}), **found["facts"])
    known = {name: each.result(facts_until) for name, each in checkouts.items()}
    # By another run of this tool, it may be: that one is waited for.
    if is_locked or _is_locked(lock):
        found["used_by"] = []
    if inside is None:
        found["missing"] = [path for path in wanted["folders"].values() if not os.path.isdir(path)]
        found["missing"] += [path for path in wanted["files"].values() if not os.path.isfile(path)]
    else:
        found["missing"] = trainers["missing"]
    return dict(
        found,
        outside=[
            f"there is no {path!r}, which the container is to see"
            for path in (inside["outside"] if inside else ())
            if not os.path.exists(path)
        ],
        image=None if inside is None else digest_of(inside),
        python=trainers["fault"],
        versions=trainers["versions"],
        packages=trainers["packages"],
        checkouts={name: each for name, each in known.items() if each},
    )


def _trainers(wanted: "dict[str, Any]") -> "dict[str, Any]":
    """Have the trainer's Python look for modules and packages; for paths, where it sees others."""
    found = {"fault": None, "versions": {}, "packages": {}, "missing": [], "editables": {}}  # type: dict[str, Any]
    modules = wanted["modules"]
    paths = [list(wanted[kind].values()) for kind in ("folders", "files")]
    # Where a container's service has started it, nothing else ends it.
    asked = json.dumps([modules, PACKAGES, *paths, int(_IMPORT_LIMIT_S)])
    unique = f"pytest-dlperf-look-{os.getpid()}-{int(time.time() * 1000)}"
    inside = wanted["inside"]
    around = [] if inside is None else filled(inside["run"], unique)
    command = [*around, wanted["python"], "-c", _VERSIONS, asked]
    limit_s = _IMPORT_LIMIT_S if inside is None else FETCH_LIMIT_S
    try:
        done = subprocess.run(  # noqa: S603, UP022 - the user's own choice; 3.6 cannot else
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=limit_s,
            check=False,
        )
    except OSError as error:
        program = "" if inside is None else f"{command[0]}: "
        return dict(found, fault=program + os.strerror(error.errno or 0))
    except subprocess.TimeoutExpired:
        if inside is not None and inside["end"]:
            output(*filled(inside["end"], unique))
        at = f" at the import of {', '.join(modules)}" if modules else ""
        return dict(found, fault=f"no answer for {limit_s:g} s{at}")
    printed = done.stdout.decode("utf-8", "replace")
    match = re.search(r"dlperf-versions (.*)", printed)
    if match is None:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        last = [line for line in lines if line.strip()][-1:]
        return dict(found, fault="exit code {}: {}".format(done.returncode, "".join(last)))
    found.update(json.loads(match.group(1)))
    found["editables"].pop("pytest_dlperf", None)  # what measures is no part of what is measured
    return found


def _processor_facts() -> "dict[str, str]":
    """Find the model and number of processors; the architecture where the kernel has no name."""
    with open("/proc/cpuinfo", errors="replace") as file:
        lines = [line.partition(":") for line in file]
    names = {value.strip() for key, _, value in lines if key.strip() == "model name"}
    count = len([key for key, _, _ in lines if key.strip() == "processor"])
    return {
        "processor": " + ".join(sorted(names)) or os.uname().machine,
        "processors": str(count or os.cpu_count() or ""),
    }


def _network_facts() -> "dict[str, str]":
    for port in glob.glob("/sys/class/infiniband/*/ports/*"):
        if "ACTIVE" in text_of(port + "/state") and "Ethernet" not in text_of(port + "/link_layer"):
            return {"network": "infiniband"}
    return {"network": "ethernet"}


def _firmware_facts() -> "dict[str, str]":
    """Find the versions of what lies below all packages, as the kernel's files have them."""
    said = {
        "bios": [SYS + "/class/dmi/id/bios_version"],
        "vbios": glob.glob(SYS + "/class/drm/card*/device/vbios_version"),
        "nic_firmware": glob.glob(SYS + "/class/infiniband/*/fw_ver"),
    }
    found = {name: [text_of(file).strip() for file in files] for name, files in said.items()}
    for file in glob.glob(PROC + "/driver/nvidia/gpus/*/information"):
        found["vbios"] += re.findall(r"^Video BIOS:\s*(\S+)", text_of(file), re.MULTILINE)
    facts = {
        name: [text for text in texts if re.search("[0-9]", text)] for name, texts in found.items()
    }
    named = {name: " + ".join(sorted(set(texts))) for name, texts in facts.items() if texts}
    return dict(named, kernel=os.uname().release)


def _is_locked(start: bytes) -> bool:
    """Say whether another run of this tool goes on, which is what uses the devices.

    Only looked at: to try the lock would keep others from it.
    """
    with contextlib.suppress(OSError), open("/proc/net/unix", "rb") as file:
        # The system writes the NUL in front of a name that lies in no folder as @.
        return any(line.split()[-1].startswith(b"@" + start[1:]) for line in file)
    return False


if __name__ == "__main__":
    _order = json.loads(sys.stdin.readline())
    end_with_input()
    sys.stdout.write("\ndlperf-probe " + json.dumps(look(_order)) + "\n")

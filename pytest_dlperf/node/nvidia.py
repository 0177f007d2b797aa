"""NVIDIA's devices, whole or in slices (MIG), as ``nvidia-smi`` shows them; sent with ``probe``."""

import re

from pytest_dlperf.node.host_tools import (
    DEV,
    NO_ANSWER,
    DeviceError,
    NoDeviceError,
    answered,
    first_ids,
    numbered,
    output,
)

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.node.host_tools import Fact

_GPU = re.compile(r"GPU (\d+): (.*?) *\(UUID: ([^\s)]+)\)")
_SLICE = re.compile(r"\s+MIG (\S+) +Device +(\d+): \(UUID: ([^\s)]+)\)")
_INSTANCE = re.compile(r"\| +(\d+) +(\d+) +(\d+) +(\d+) +\|")  # GPU, GI, CI, device
_REFUSALS = ("No devices were found", "Unable to determine the device handle")
_DEVICE_LOST, _OTHER_DRIVER = 15, 18  # exit codes
_UNKNOWN = re.compile(r"\[.*\]$|N/A$|Not Supported$")
_BROKEN = re.compile(r"\[?(ERR!|(Unknown Error|GPU is lost|GPU requires reset)\]?$)", re.IGNORECASE)
_REFUSED_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')
CAPS = {
    "power_limit": "power.limit",
    "application_clock": "clocks.applications.graphics",
    "compute_mode": "compute_mode",
    "ecc": "ecc.mode.current",
    "persistence": "persistence_mode",
    "mig": "mig.mode.current",
}
"""What an administrator sets that makes a device slower, by the name of the fact."""
_SHARES = "nvidia-cuda-mps-server"
"""Serves the processes of others, which are listed themselves, and computes nothing."""


def nvidia_from_files() -> "tuple[list[str], dict[str, Fact]]":
    """List devices by their files."""
    return first_ids(len(numbered(DEV + "/nvidia*"))), {}


def nvidia_from_tool() -> "tuple[list[str] | None, dict[str, Fact]]":
    """List whole devices by number, or by UUID beside sliced ones; without any, slices by UUID.

    A device in MIG mode without a slice is none to CUDA.

    Raises:
        DeviceError: The tool finds devices, or a driver, that cannot be used.
        NoDeviceError: It finds nothing, nor do files show devices.
    """
    code, lines = answered("nvidia-smi", "-L")
    has_files = bool(numbered(DEV + "/nvidia*"))
    if code is None or (code == NO_ANSWER and has_files):
        return None, {}
    rows = [_GPU.match(line) for line in lines]
    gpus = {row.group(1): (row.group(2), row.group(3)) for row in rows if row}
    refusals = [line for line in lines if line.startswith(_REFUSALS)]
    is_broken = code in (_DEVICE_LOST, _OTHER_DRIVER) or (code != 0 and has_files)
    if refusals or code != 0:
        others = [line for line in lines if not _GPU.match(line) and not _SLICE.match(line)]
        said = "; ".join(line.strip() for line in refusals or others)
        said = said or ("no answer" if code == NO_ANSWER else f"exit code {code}")
        raise (DeviceError if refusals or is_broken else NoDeviceError)("nvidia-smi: " + said)
    if not gpus:
        return None, {}
    slices = _slices(lines)
    facts = _facts(gpus)
    sliced = {number for number, mode in facts["mig"].items() if mode == "Enabled"}
    sliced.update(number for number, _, _ in slices.values())
    if sliced.issuperset(gpus) and not slices:
        raise DeviceError(
            "nvidia-smi: No MIG devices found, and MIG mode is enabled; make some "
            "(nvidia-smi mig -cgi PROFILE -C), or disable it (nvidia-smi -mig 0)"
        )
    whole = {
        number: gpus[number][1] if sliced else number for number in gpus if number not in sliced
    }
    by_id = {
        name: {whole[number]: fact[number] for number in whole if number in fact}
        for name, fact in facts.items()
    }
    for uuid, (number, _, profile) in slices.items():
        of_slice = {name: fact[number] for name, fact in facts.items() if number in fact}
        of_slice["device"] = "{} MIG {}".format(of_slice.get("device", "GPU"), profile)
        of_slice["uuid"] = uuid
        for name, text in of_slice.items():
            by_id[name][uuid] = text
    shown = output("nvidia-smi") or []
    if sliced:
        by_place = {(number, place): uuid for uuid, (number, place, _) in slices.items()}
        first = {number: uuid for (number, _), uuid in reversed(list(by_place.items()))}
        by_id["names"] = dict(first, **whole)
        for gpu, instance, part, place in _INSTANCE.findall("\n".join(shown)):
            if (gpu, place) in by_place:
                # As CUDA named slices before drivers gave them UUIDs, and still may.
                old = f"MIG-{gpus[gpu][1]}/{instance}/{part}"
                by_id["names"][old] = by_place[gpu, place]
    return list(whole.values()) or list(slices), dict(by_id, **_host_facts(shown))


def nvidia_users() -> "list[tuple[str, str]]":
    """Name the processes on whole devices, each behind the UUID of its device."""
    query = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name")
    rows = [
        re.match(r"([^\s,]+), (\d+, .*)", line)
        for line in output(*query, "--format=csv,noheader") or []
    ]
    found = [(row.group(1), row.group(2)) for row in rows if row]
    return [(uuid, process) for uuid, process in found if not process.endswith(_SHARES)]


def _slices(lines: "list[str]") -> "dict[str, tuple[str, str, str]]":
    """List slices by UUID: the number of the device that each is of, that there, its profile."""
    found = {}
    number = ""
    for line in lines:
        gpu, part = _GPU.match(line), _SLICE.match(line)
        if gpu is not None:
            number = gpu.group(1)
        elif part is not None:
            found[part.group(3)] = (number, part.group(2), part.group(1))
    return found


def _facts(gpus: "Mapping[str, tuple[str, str]]") -> "dict[str, dict[str, str]]":
    """Find the facts of each device, by name and number."""
    fields = dict({"driver": "driver_version"}, **CAPS)
    found = {name: {} for name in fields}  # type: dict[str, dict[str, str]]
    found["device"] = {number: _known(number, name) for number, (name, _) in gpus.items()}
    found["uuid"] = {number: uuid for number, (_, uuid) in gpus.items()}
    asked = [list(fields)]  # in one question; each alone where the tool refuses that
    while asked:
        names = asked.pop()
        query = ",".join(["index", *(fields[name] for name in names)])
        code, lines = answered("nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader")
        if code == NO_ANSWER:
            break
        rows = [[word.strip() for word in line.split(",")] for line in lines if code == 0]
        rows = [row for row in rows if len(row) == len(names) + 1 and row[0] in gpus]
        for row in rows:
            for place, name in enumerate(names, 1):
                found[name][row[0]] = _known(row[0], row[place])
        if not rows and names[1:]:
            # A tool names the first field that it does not know.
            refused = set(_REFUSED_FIELD.findall("\n".join(lines)))
            known = [name for name in names if fields[name] not in refused]
            asked = [known] if len(known) < len(names) else [[name] for name in names]
    return {
        name: {number: text for number, text in fact.items() if text}
        for name, fact in found.items()
    }


def _known(number: str, said: str) -> str:
    """Return what the tool shows of a device, nothing where it does not know."""
    if _BROKEN.match(said):
        raise DeviceError("nvidia-smi shows {} for GPU {}".format(said.strip("[]"), number))
    return "" if _UNKNOWN.match(said) else re.sub(r"\.0+(?= )", "", said)


def _host_facts(shown: "list[str]") -> "dict[str, str]":
    facts = {}
    for line in shown:
        version = re.search(r"CUDA Version: *(\d+(?:\.\d+)*)", line)
        if version is not None:
            facts["cuda"] = version.group(1)
    topology = output("nvidia-smi", "topo", "-m") or []
    rows = [line for line in topology if re.match(r"GPU\d+\s", line)]
    if len(rows) > 1:
        joined = any(re.search(r"\sNV\d+\s", row + " ") for row in rows)
        facts["interconnect"] = "nvlink" if joined else "pcie"
    return facts

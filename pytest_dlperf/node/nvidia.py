"""NVIDIA's whole devices, as ``nvidia-smi`` shows them; sent with ``probe``."""

import os
import re
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from pytest_dlperf.node.host_tools import DEV, NO_ANSWER, Found, answered, first_ids, numbered

VARIABLE = "CUDA_VISIBLE_DEVICES"
CAPS = {
    "power_limit": ("gpu_power_readings/current_power_limit", "power_readings/power_limit"),
    "application_clock": ("applications_clocks/graphics_clock",),
    "compute_mode": ("compute_mode",),
    "ecc": ("ecc_mode/current_ecc",),
    "persistence": ("persistence_mode",),
}
"""What an administrator sets that makes a device slower: its places in the report of a device."""
SLICED = (
    "its GPUs are in MIG mode, and slices do not count: leave that mode (nvidia-smi -mig 0), or "
    f"name a slice there in {VARIABLE} and the device with its profile in cluster.yaml"
)
_REFUSALS = ("No devices were found", "Unable to determine the device handle")
_DEVICE_LOST, _OTHER_DRIVER = 15, 18  # exit codes
_UNKNOWN = re.compile(r"\[.*\]$|N/A$|Not Supported$|.*deprecated$")
_BROKEN = re.compile(r"\[?(ERR!|(Unknown Error|GPU is lost|GPU requires reset)\]?$)", re.IGNORECASE)
_SHARES = "nvidia-cuda-mps-server"
"""Serves the processes of others, which are listed themselves, and computes nothing."""


def find_nvidia() -> Found:
    """List whole devices by number, or by UUID beside some in MIG mode, which CUDA counts apart."""
    by_files = Found(first_ids(len(numbered(DEV + "/nvidia*"))))
    code, lines = answered("nvidia-smi", "-q", "-x")
    if code is None or (code == NO_ANSWER and by_files.ids):
        return by_files
    printed = "\n".join(lines)
    report = re.search("<nvidia_smi_log>.*</nvidia_smi_log>", printed, re.DOTALL)
    around = printed.replace(report.group(), "") if report else printed
    others = [line.strip() for line in around.split("\n") if line.strip()[:1] not in ("", "<")]
    refusals = [line for line in others if line.startswith(_REFUSALS)]
    if not refusals and code == 0:
        if report is None:
            return by_files
        return _found(ET.fromstring(report.group()))  # noqa: S314 - no entities: without its head
    said = "; ".join(refusals or others)
    said = said or ("no answer" if code == NO_ANSWER else f"exit code {code}")
    found = Found()
    if refusals or code in (_DEVICE_LOST, _OTHER_DRIVER) or by_files.ids:
        found.refused = "nvidia-smi: " + said
    else:
        found.failed = "nvidia-smi: " + said
    return found


def _found(report: "Element") -> Found:
    gpus = dict(enumerate(report.findall("gpu")))
    whole = {
        number: gpu
        for number, gpu in gpus.items()
        if gpu.findtext("mig_mode/current_mig") != "Enabled"
    }
    found = Found()
    first = os.environ.get(VARIABLE, "").partition(",")[0].strip()
    if first.startswith("MIG-"):
        found.ids, found.is_slice = [first], True  # CUDA shows a process one slice
    elif gpus and not whole:
        found.refused = SLICED
    else:
        for number, gpu in whole.items():
            uuid = gpu.findtext("uuid", "")
            one = str(number) if len(whole) == len(gpus) else uuid
            found.ids.append(one)
            found.names.update({str(number): one, uuid: one})
            texts = _texts(gpu)
            for text in filter(_BROKEN.match, texts.values()):
                found.refused = "nvidia-smi shows {} for GPU {}".format(text.strip("[]"), number)
            found.each[one] = {
                name: re.sub(r"\.0+(?= )", "", text)
                for name, text in texts.items()
                if text and not _UNKNOWN.match(text)
            }
            found.users += [(one, user) for user in _users(gpu)]
    for name in ("driver", "cuda"):
        version = report.findtext(name + "_version", "").strip()
        if re.match("[0-9]", version):
            found.facts[name] = version
    return found


def _texts(gpu: "Element") -> "dict[str, str]":
    places = dict(CAPS, device=("product_name",))
    return {
        name: next(filter(None, (gpu.findtext(one, "").strip() for one in ways)), "")
        for name, ways in places.items()
    }


def _users(gpu: "Element") -> "list[str]":
    """Name the processes that compute, each by number and program."""
    found = []
    for process in gpu.iterfind("processes/process_info"):
        name = process.findtext("process_name", "")
        if "C" in process.findtext("type", "C") and not name.endswith(_SHARES):
            found.append("{}, {}".format(process.findtext("pid", ""), name))
    return found

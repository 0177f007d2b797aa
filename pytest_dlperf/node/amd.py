"""AMD's devices, by the kernel's files; sent with ``probe``."""

import glob
import os
from collections.abc import Mapping

from pytest_dlperf.node.host_tools import DEV, PROC, ROOT, SYS, Found, numbered, text_of

_NODES = SYS + "/class/kfd/kfd/topology/nodes/"
_PROCESSES = SYS + "/class/kfd/kfd/proc/"


def find_amd() -> Found:
    """Name devices by their instruction set and PCI number: two products may share the former."""
    found = Found()
    processes = numbered(_PROCESSES + "*")
    for node in numbered(_NODES + "*"):
        number = text_of(f"{_NODES}{node}/gpu_id").strip()
        lines = text_of(f"{_NODES}{node}/properties").splitlines()
        said = dict(line.split()[:2] for line in lines)
        minor = said.get("drm_render_minor", "0")
        # The files name all devices of the host, also where a container has only some.
        is_here = minor == "0" or os.path.exists(f"{DEV}/dri/renderD{minor}")
        if number in ("", "0") or not is_here:
            continue
        one = str(len(found.ids))
        found.ids.append(one)
        facts = {"device": _name(said), "power_limit": _power_limit(said)}
        found.each[one] = {name: fact for name, fact in facts.items() if fact}
        found.users += [
            (one, f"{process}, {text_of(f'{PROC}/{process}/comm').strip()}")
            for process in processes
            if text_of(f"{_PROCESSES}{process}/vram_{number}").strip("0\n ")
        ]
    rocm = text_of(os.environ.get("ROCM_PATH", ROOT + "/opt/rocm") + "/.info/version")
    versions = {
        "driver": text_of(SYS + "/module/amdgpu/version").strip(),
        "rocm": rocm.strip().partition("-")[0],
    }
    found.facts = {name: version for name, version in versions.items() if version}
    return found


def _name(said: "Mapping[str, str]") -> str:
    target = int(said.get("gfx_target_version", "0"))
    major, minor, step = (target // n % 100 for n in (10000, 100, 1))
    number = int(said.get("device_id", "0"))
    return f"AMD gfx{major}{minor:x}{step:x}" + (f" (0x{number:04x})" if number else "")


def _power_limit(said: "Mapping[str, str]") -> str:
    place, domain = int(said.get("location_id", "0")), int(said.get("domain", "0"))
    bus, device, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7
    folder = f"{SYS}/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.{function}"
    files = glob.glob(f"{folder}/hwmon/hwmon*/power1_cap")
    microwatts = text_of(files[0]).strip() if files else ""
    return f"{int(microwatts) // 1000000} W" if microwatts.isdigit() else ""

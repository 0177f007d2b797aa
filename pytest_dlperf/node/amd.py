"""AMD's devices, by the kernel's files; sent with ``probe``."""

import glob
import os
from collections.abc import Mapping

from pytest_dlperf.node.host_tools import (
    DEV,
    ROOT,
    SYS,
    Found,
    described,
    numbered,
    pairs_in,
    text_of,
)

_WHOLE = ("", "SPX")  # a device in one part
_INTEGRATED_BELOW_BYTES = 4 << 30  # graphics in a processor have less memory of their own
_NODES = SYS + "/class/kfd/kfd/topology/nodes/"
_PROCESSES = SYS + "/class/kfd/kfd/proc/"


def find_amd() -> Found:
    """Name devices by their instruction set and PCI number: two products may share the former."""
    found = Found()
    processes = numbered(_PROCESSES + "*")
    place = 0
    for node in numbered(_NODES + "*"):
        number = text_of(f"{_NODES}{node}/gpu_id").strip()
        said = pairs_in(f"{_NODES}{node}/properties")
        minor = said.get("drm_render_minor", "0")
        # The files name all devices of the host, also where a container has only some.
        is_here = minor == "0" or os.path.exists(f"{DEV}/dri/renderD{minor}")
        if number in ("", "0") or not is_here:
            continue
        memory = pairs_in(f"{_NODES}{node}/mem_banks/0/properties").get("size_in_bytes")
        if memory is None or int(memory) >= _INTEGRATED_BELOW_BYTES:
            one = str(place)
            found.ids.append(one)
            facts = {"device": _name(said), "power_limit": _power_limit(said)}
            found.each[one] = {name: fact for name, fact in facts.items() if fact}
            found.users += [
                (one, described(process))
                for process in processes
                if text_of(f"{_PROCESSES}{process}/vram_{number}").strip("0\n ")
            ]
        place += 1
    rocm = text_of(os.environ.get("ROCM_PATH", ROOT + "/opt/rocm") + "/.info/version")
    versions = {
        "driver": text_of(SYS + "/module/amdgpu/version").strip(),
        "rocm": rocm.strip().partition("-")[0],
    }
    found.facts = {name: version for name, version in versions.items() if version}
    return found


def _name(said: "Mapping[str, str]") -> str:
    """Name a device, and the parts that it is split into, each a device to programs: CPX/NPS4."""
    target = int(said.get("gfx_target_version", "0"))
    major, minor, step = (target // n % 100 for n in (10000, 100, 1))
    number = int(said.get("device_id", "0"))
    name = f"AMD gfx{major}{minor:x}{step:x}" + (f" (0x{number:04x})" if number else "")
    files = [f"{_on_bus(said)}/current_{kind}_partition" for kind in ("compute", "memory")]
    modes = [text_of(file).strip() for file in files]
    return name if modes[0] in _WHOLE else name + " " + "/".join(filter(None, modes))


def _on_bus(said: "Mapping[str, str]") -> str:
    """Return the folder of the device that a node is of, or a part of."""
    place = int(said.get("location_id", "0"))
    bus, device, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7
    domain = int(said.get("domain", "0"))
    return f"{SYS}/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.{function}"


def _power_limit(said: "Mapping[str, str]") -> str:
    files = glob.glob(f"{_on_bus(said)}/hwmon/hwmon*/power1_cap")
    microwatts = text_of(files[0]).strip() if files else ""
    return f"{int(microwatts) // 1000000} W" if microwatts.isdigit() else ""

"""AMD's devices, by the kernel's files and AMD's tools; sent with ``probe``."""

import contextlib
import glob
import os
import re

from pytest_dlperf.node.host_tools import (
    DEV,
    ROOT,
    SYS,
    described,
    first_ids,
    joined_names,
    json_of,
    numbered,
    pairs_in,
    text_of,
)

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.node.host_tools import Fact

_WHOLE = ("", "SPX")  # a device in one part
_XGMI = "11"  # type of a link, as the kernel numbers them
_INTEGRATED_BELOW_BYTES = 4 << 30  # graphics in a processor have less memory of their own
_NODES = SYS + "/class/kfd/kfd/topology/nodes/"


def _nodes() -> "list[tuple[int, str, str, dict[str, str]]]":
    """List devices: place among all, node, the kernel's id and its properties."""
    found = []
    place = 0
    for node in numbered(_NODES + "*"):
        number = text_of(f"{_NODES}{node}/gpu_id").strip()
        said = pairs_in(f"{_NODES}{node}/properties")
        minor = said.get("drm_render_minor", "0")
        # The files name all devices of the host, also where a container has only some.
        is_here = minor == "0" or os.path.exists(f"{DEV}/dri/renderD{minor}")  # noqa: PTH110 - as above
        if number in ("", "0") or not is_here:
            continue
        memory = pairs_in(f"{_NODES}{node}/mem_banks/0/properties").get("size_in_bytes")
        if memory is None or int(memory) >= _INTEGRATED_BELOW_BYTES:
            found.append((place, node, number, said))
        place += 1
    return found


def amd_from_files() -> "tuple[list[str], dict[str, Fact]]":
    """Name devices by their instruction set and PCI number: two products may share the former."""
    found = _nodes()
    names = {}
    for place, _, _, said in found:
        target = int(said.get("gfx_target_version", "0"))
        major, minor, step = (target // n % 100 for n in (10000, 100, 1))
        number = int(said.get("device_id", "0"))
        name = f"AMD gfx{major}{minor:x}{step:x}" + (f" (0x{number:04x})" if number else "")
        names[str(place)] = name + _partition(said)
    unique = {str(place): said.get("unique_id", "0") for place, _, _, said in found}
    facts = {
        "device": names,
        # Parts of a device share its.
        "uuid": {
            place: f"GPU-{int(one):016x}"
            for place, one in unique.items()
            if one != "0" and list(unique.values()).count(one) == 1
        },
        "power_limit": {str(place): _power_limit(said) for place, _, _, said in found},
        "driver": text_of(SYS + "/module/amdgpu/version").strip(),
        "rocm": text_of(os.environ.get("ROCM_PATH", ROOT + "/opt/rocm") + "/.info/version")
        .strip()
        .partition("-")[0],
    }  # type: dict[str, Fact]
    here = {node for _, node, _, _ in found}
    if len(here) > 1:
        links = [
            pairs_in(file)
            for node in here
            for file in glob.glob(f"{_NODES}{node}/io_links/*/properties")  # noqa: PTH207 - as above
        ]
        joined = any(link.get("type") == _XGMI and link.get("node_to") in here for link in links)
        facts["interconnect"] = "xgmi" if joined else "pcie"
    return [str(place) for place, _, _, _ in found], facts


def amd_from_tool() -> "tuple[list[str] | None, dict[str, Fact]]":
    """Name the products; how many a container has the kernel alone knows."""
    names, drivers = [], []  # type: list[str], list[str]
    with contextlib.suppress(Exception):
        shown = json_of("amd-smi", "static", "--asic", "--driver", "--json")
        shown = shown.get("gpu_data", [shown]) if isinstance(shown, dict) else shown
        names = [one["asic"]["market_name"] for one in shown]
        drivers = [one["driver"].get("driver_version") or one["driver"]["version"] for one in shown]
    if not names:
        shown = json_of("rocm-smi", "--showproductname", "--showdriverversion", "--json")
        for card, said in shown.items():
            plain = {key.lower(): value for key, value in said.items()}
            drivers += [plain["driver version"]] if card == "system" else []
            names += [plain["card series"]] if card.startswith("card") else []
    # What no table has is printed as a number, or as not available.
    known = bool(names) and all(re.search(r"[A-Za-z]{3}", name) for name in names)
    driver = joined_names([driver for driver in drivers if re.match(r"\d", driver)])
    facts = {"driver": driver}  # type: dict[str, Fact]
    found = _nodes()
    if known and found:
        each = names if len(names) == len(found) else [joined_names(names)] * len(found)
        facts["device"] = {
            str(place): each[number] + _partition(said)
            for number, (place, _, _, said) in enumerate(found)
        }
    elif known:
        facts["device"] = joined_names(names)
    return None if found else first_ids(len(names)), facts


def _on_bus(said: "Mapping[str, str]") -> str:
    """Return the folder of the device that a node is of, or a part of."""
    place = int(said.get("location_id", "0"))
    bus, device, function = place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7
    domain = int(said.get("domain", "0"))
    return f"{SYS}/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.{function}"


def _partition(said: "Mapping[str, str]") -> str:
    """Name the parts that a device is split into, each a device to programs: ``CPX/NPS4``."""
    files = [f"{_on_bus(said)}/current_{name}_partition" for name in ("compute", "memory")]
    modes = [text_of(file).strip() for file in files]
    return "" if modes[0] in _WHOLE else " " + "/".join(filter(None, modes))


def _power_limit(said: "Mapping[str, str]") -> str:
    files = glob.glob(f"{_on_bus(said)}/hwmon/hwmon*/power1_cap")  # noqa: PTH207 - as above
    microwatts = text_of(files[0]).strip() if files else ""
    return f"{int(microwatts) // 1000000} W" if microwatts.isdigit() else ""


def amd_users() -> "list[tuple[str, str]]":
    """Name the processes that hold memory of a device, each behind the place of that."""
    processes = SYS + "/class/kfd/kfd/proc/"
    return [
        (str(place), described(process))
        for process in numbered(processes + "*")
        for place, _, number, _ in _nodes()
        if text_of(f"{processes}{process}/vram_{number}").strip("0\n ")
    ]

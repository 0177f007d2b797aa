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

_WHOLE = "SPX"  # a device in one part
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


def amd_from_files() -> "tuple[list[str], dict[str, str]]":
    """Name devices by their instruction set and PCI number: two products may share the former."""
    found = _nodes()
    names = []
    for _, _, _, said in found:
        target = int(said.get("gfx_target_version", "0"))
        major, minor, step = (target // n % 100 for n in (10000, 100, 1))
        number = int(said.get("device_id", "0"))
        names.append(f"AMD gfx{major}{minor:x}{step:x}" + (f" (0x{number:04x})" if number else ""))
    facts = {
        "device": joined_names(names),
        "driver": text_of(SYS + "/module/amdgpu/version").strip(),
        "rocm": text_of(os.environ.get("ROCM_PATH", ROOT + "/opt/rocm") + "/.info/version")
        .strip()
        .partition("-")[0],
    }
    if facts["device"]:
        facts["device"] += _partition()
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


def amd_from_tool() -> "tuple[list[str] | None, dict[str, str]]":
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
    facts = {"device": joined_names(names) + _partition() if known else ""}
    facts["driver"] = joined_names([driver for driver in drivers if re.match(r"\d", driver)])
    return None if _nodes() else first_ids(len(names)), facts


def _partition() -> str:
    """Name the parts that devices are split into, each a device to programs: ``CPX/NPS4``."""
    modes = []
    for name in ("current_compute_partition", "current_memory_partition"):
        files = glob.glob(f"{SYS}/class/drm/*/device/{name}")  # noqa: PTH207 - as above
        modes.append(joined_names([text_of(file).strip() for file in files]))
    return "" if modes[0] in ("", _WHOLE) else " " + "/".join(filter(None, modes))


def amd_users() -> "list[str]":
    """Name the processes that hold memory of a device."""
    ids = {number for _, _, number, _ in _nodes()}
    processes = SYS + "/class/kfd/kfd/proc/"
    return [
        described(process)
        for process in numbered(processes + "*")
        if any(text_of(f"{processes}{process}/vram_{number}").strip("0\n ") for number in ids)
    ]

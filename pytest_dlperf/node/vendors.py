"""The table of accelerators: how each vendor's show, who uses them, what confines a run to some.

Each row of ``KINDS`` has three functions. ``from_files`` lists ids by files of the system, which
takes no time; ``from_tool`` by the vendor's tool, ``None`` where that lists none. Both give facts:
``device``, ``driver``, ``interconnect`` and the version of the runtime, each as one text of the
host or as texts by id. ``users`` names processes, alone or behind the id of what they use. They may
raise anything: then nothing is known. After a ``DeviceError`` the host is refused. Sent to hosts
with ``probe``.
"""

import contextlib
import glob
import os
import re

from pytest_dlperf.node.amd import amd_from_files, amd_from_tool, amd_users
from pytest_dlperf.node.host_tools import (
    DEV,
    ROOT,
    SYS,
    DeviceError,
    described,
    first_ids,
    holders,
    joined_names,
    json_of,
    numbered,
    output,
    text_of,
)
from pytest_dlperf.node.nvidia import nvidia_from_files, nvidia_from_tool, nvidia_users

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pytest_dlperf.node.host_tools import Fact

_GOOGLE, _INTEL, _HABANA = "0x1ae0", "0x8086", "0x1da3"
_TPUS = {
    "0x0027": "TPU v2 or v3",
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU7x",
    "0x007c": "TPU8t",
    "0x0083": "TPU8i",
}
"""Generations by the number on the PCI bus."""


class Kind:
    """One kind of accelerator.

    ``variables`` limit a process to some devices: what a run is given their ids in, then others of
    the same meaning. ``outer`` does so before them: ids count from 0 among those that it leaves.
    With ``ranges`` they may be written as in ``0-3``.
    """

    def __init__(  # noqa: PLR0913 - the columns of a table, by name
        self,
        name: str,
        *,
        variables: "Sequence[str]",
        from_files: "Callable[[], tuple[list[str], Mapping[str, Fact]]]",
        from_tool: "Callable[[], tuple[list[str] | None, Mapping[str, Fact]]]",
        users: "Callable[[], Sequence[str | tuple[str, str]]]",
        outer: str = "",
        ranges: bool = False,
    ) -> None:
        """Make a row."""
        self.name = name
        self.variables = variables
        self.outer = outer
        self.ranges = ranges
        self.from_files = from_files
        self.from_tool = from_tool
        self.users = users


# ------------------------------------------------------------------------------ Ascend


def _ascend_from_files() -> "tuple[list[str], dict[str, str]]":
    home = os.environ.get("ASCEND_HOME_PATH", ROOT + "/usr/local/Ascend/ascend-toolkit/latest")
    versions = []
    for file in ("version.info", "compiler/version.info", "*/ascend_toolkit_install.info"):
        for found in sorted(glob.glob(f"{home}/{file}")):  # noqa: PTH207 - as above
            # The product's version goes before that of its parts.
            for key in ("version_dir", "[Vv]ersion"):
                versions += re.findall(rf"^{key} *= *(\d\S*)", text_of(found), re.MULTILINE)
    return first_ids(len(numbered(DEV + "/davinci*"))), {"cann": versions[0] if versions else ""}


def _ascend_chips() -> "list[tuple[str, str, str]]":
    """List chips: the places of card and chip, the id, the name."""
    rows = [
        re.match(r"\s*(\d+\s+\d+)\s+(\d+)\s+(?:Ascend\s?)?(\d\w+)\s*$", line)
        for line in output("npu-smi", "info", "-m") or []
    ]
    return [
        (" ".join(row.group(1).split()), row.group(2), "Ascend " + row.group(3))
        for row in rows
        if row
    ]


def _ascend_from_tool() -> "tuple[list[str] | None, dict[str, str]]":
    chips = {number: name for _, number, name in _ascend_chips()}
    facts = {"device": joined_names(list(chips.values()))}
    for line in output("npu-smi", "info") or []:
        version = re.search(r"npu-smi \S+ +Version: (\S+)", line)
        if version is not None:
            facts["driver"] = version.group(1)
    rows_of_links = [
        line
        for line in output("npu-smi", "info", "-t", "topo") or []
        if re.match(r"\s*NPU\d+.* X ", line)
    ]
    if len(rows_of_links) > 1:
        facts["interconnect"] = "hccs" if any("HCCS" in row for row in rows_of_links) else "pcie"
    return sorted(chips, key=int) or None, facts


def _ascend_users() -> "list[str | tuple[str, str]]":
    ids = {place: number for place, number, _ in _ascend_chips()}
    found = []  # type: list[str | tuple[str, str]]
    for line in output("npu-smi", "info") or []:
        row = re.match(r"\| *(\d+) +(\d+) *\| *(\d+) *\| *(\S+) *\| *\d+ *\|", line)
        if row is not None:
            card, chip, process, name = row.groups()
            user, place = f"{process}, {name}", f"{card} {chip}"
            found.append((ids[place], user) if place in ids else user)
    return found


# ------------------------------------------------------------------------------ TPU

_TPU_FILES = (DEV + "/accel*", DEV + "/vfio/*")


def _tpu_from_files() -> "tuple[list[str], dict[str, str]]":
    numbers = [
        text_of(file[: -len("vendor")] + "device").strip()
        for file in glob.glob(SYS + "/bus/pci/devices/*/vendor")  # noqa: PTH207 - as above
        if text_of(file).strip() == _GOOGLE
    ]
    names = [_TPUS[number] for number in numbers if number in _TPUS]
    # The bus shows all chips of the host, also where a container has only some.
    files = next(filter(None, map(numbered, _TPU_FILES)), [])
    device = joined_names(names)
    generation = re.match(r"v[23](?=-)", os.environ.get("TPU_ACCELERATOR_TYPE", ""))
    if device == _TPUS["0x0027"] and generation:
        device = "TPU " + generation.group()
    return first_ids(min(len(names), len(files))), {"device": device}


def _tpu_users() -> "list[str]":
    return holders(DEV + r"/(accel|vfio/)\d+")


# ------------------------------------------------------------------------------ Intel


def _intel_from_files() -> "tuple[list[str], dict[str, str]]":
    names = []
    for number in numbered(DEV + "/dri/renderD*"):
        device = f"{SYS}/class/drm/renderD{number}/device"
        if text_of(device + "/vendor").strip() == _INTEL and not _is_integrated(
            os.path.realpath(device)
        ):
            names.append(f"Intel GPU {text_of(device + '/device').strip()}")
    return first_ids(len(names)), {"device": joined_names(names)}


def _is_integrated(address: str) -> bool:
    # Graphics that are a part of the processor have this place in every machine.
    return address.endswith("0000:00:02.0")


def _intel_from_tool() -> "tuple[list[str] | None, dict[str, str]]":
    selector = os.environ.get("ONEAPI_DEVICE_SELECTOR", "")
    if re.search(r":\s*\d", selector):
        # It counts among the devices that ZE_AFFINITY_MASK leaves, and that is set for each run.
        raise DeviceError(
            f"ONEAPI_DEVICE_SELECTOR={selector} is set there; name devices in ZE_AFFINITY_MASK"
        )
    listed = _intel_cards()
    if not listed:
        return None, {}
    facts = {"device": joined_names([device["device_name"] for device in listed])}
    tiles = 1
    with contextlib.suppress(Exception):
        said = _intel_card(listed[0])
        facts["driver"] = str(said.get("driver_version", ""))
        tiles = _tiles(said)
    ids = first_ids(len(listed) * tiles)
    rows = [
        line
        for line in output("xpu-smi", "topology", "-m") or []
        if re.match(r"\s*GPU \d+/\d+ *\|", line)
    ]
    if len(ids) > 1 and rows:
        facts["interconnect"] = "xelink" if any("|XL" in row for row in rows) else "pcie"
    return ids, facts


def _intel_cards() -> "list[dict[str, Any]]":
    return [
        device
        for device in json_of("xpu-smi", "discovery", "-j")["device_list"]
        if device.get("device_function_type", "physical") == "physical"
        and not _is_integrated(device.get("pci_bdf_address", ""))
    ]


def _intel_card(card: "Mapping[str, Any]") -> "dict[str, Any]":
    said = json_of("xpu-smi", "discovery", "-d", str(card["device_id"]), "-j")
    return dict(said)


def _tiles(said: "Mapping[str, Any]") -> int:
    """Count the devices of a card: each tile is one to programs, unless they are told otherwise."""
    is_flat = os.environ.get("ZE_FLAT_DEVICE_HIERARCHY", "FLAT") == "FLAT"
    return int(said.get("number_of_tiles", 1)) if is_flat else 1


def _intel_users() -> "list[str | tuple[str, str]]":
    """Name the processes on each card behind all of its tiles: theirs are not told."""
    listed = json_of("xpu-smi", "ps", "-j")["device_util_by_proc_list"]
    cards = _intel_cards()
    tiles = 1
    with contextlib.suppress(Exception):
        tiles = _tiles(_intel_card(cards[0]))
    ids = {
        card["device_id"]: [str(place * tiles + tile) for tile in range(tiles)]
        for place, card in enumerate(cards)
    }
    found = []  # type: list[str | tuple[str, str]]
    for one in listed:
        user = "{}, {}".format(one["process_id"], one["process_name"])
        # The tool uses the devices itself to look at them.
        if one["process_name"] != "xpu-smi":
            found += [(tile, user) for tile in ids.get(one.get("device_id"), ())] or [user]
    return found


# ------------------------------------------------------------------------------ Gaudi


def _gaudi_from_files() -> "tuple[list[str], dict[str, str]]":
    numbers = [
        number
        for number in numbered(DEV + "/accel/accel*")
        if text_of(f"{SYS}/class/accel/accel{number}/device/vendor").strip() == _HABANA
    ]
    return first_ids(len(numbers or numbered(DEV + "/hl*"))), {}


def _gaudi_from_tool() -> "tuple[list[str] | None, dict[str, str]]":
    asked = ["module_id", "name", "driver_version"]
    lines = output("hl-smi", "-Q", ",".join(asked), "-f", "csv") or [""]
    rows = [[word.strip() for word in line.split(",")] for line in lines]
    if rows[0] != asked:
        return None, {}
    modules = [row[0] for row in rows[1:] if len(row) == len(asked) and row[0].isdigit()]
    facts = {
        "device": joined_names([row[1] for row in rows[1:]]),
        "driver": joined_names([row[2] for row in rows[1:]]),
    }
    return sorted(modules, key=int) or None, facts


def _gaudi_users() -> "list[str]":
    return holders(DEV + r"/(accel/accel|hl)\d+")


# ------------------------------------------------------------------------------ Neuron


def _neuron_chips() -> "list[dict[str, Any]]":
    """List chips, each with its ``cores``: of their numbers, logical ones, those of the host."""
    chips = []  # type: list[dict[str, Any]]
    for tool in ("neuron-ls", ROOT + "/opt/aws/neuron/bin/neuron-ls"):  # the latter is in no PATH
        with contextlib.suppress(ValueError):
            chips = json_of(tool, "-j")
            break
    count = 0
    for chip in chips:
        cores = chip.get("neuroncore_ids") or range(count, count + chip["nc_count"])
        chip["cores"] = [str(core) for core in cores]
        count += len(cores)
    return chips


def _neuron_from_tool() -> "tuple[list[str] | None, dict[str, str]]":
    chips = _neuron_chips()
    names = []
    for chip in chips:
        folder = "{}/devices/virtual/neuron_device/neuron{}".format(SYS, chip["neuron_device"])
        name = text_of(folder + "/info/architecture/device_name").strip()
        size = chip.get("logical_neuroncore_config")
        names += [f"AWS {name} core" + (f" LNC={size}" if size else "")] if name else []
    return [core for chip in chips for core in chip["cores"]] or None, {
        "device": joined_names(names)
    }


def _neuron_users() -> "list[tuple[str, str]]":
    """Name the processes on each chip behind all of its cores: theirs are not told."""
    return [
        (core, described(str(process["pid"])))
        for chip in _neuron_chips()
        for process in chip.get("neuron_processes") or []
        for core in chip["cores"]
    ]


# ------------------------------------------------------------------------------ all

KINDS = (
    Kind(
        "nvidia",
        variables=("CUDA_VISIBLE_DEVICES",),
        from_files=nvidia_from_files,
        from_tool=nvidia_from_tool,
        users=nvidia_users,
    ),
    Kind(
        "amd",
        variables=("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        outer="ROCR_VISIBLE_DEVICES",
        from_files=amd_from_files,
        from_tool=amd_from_tool,
        users=amd_users,
    ),
    Kind(
        "ascend",
        variables=("ASCEND_RT_VISIBLE_DEVICES",),
        from_files=_ascend_from_files,
        from_tool=_ascend_from_tool,
        users=_ascend_users,
    ),
    Kind(
        "tpu",
        variables=("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
        from_files=_tpu_from_files,
        from_tool=lambda: (None, {}),
        users=_tpu_users,
    ),
    Kind(
        "intel",
        variables=("ZE_AFFINITY_MASK",),
        from_files=_intel_from_files,
        from_tool=_intel_from_tool,
        users=_intel_users,
    ),
    Kind(
        "gaudi",
        variables=("HABANA_VISIBLE_MODULES",),
        from_files=_gaudi_from_files,
        from_tool=_gaudi_from_tool,
        users=_gaudi_users,
    ),
    Kind(
        "neuron",
        variables=("NEURON_RT_VISIBLE_CORES",),
        from_files=lambda: ([], {}),
        from_tool=_neuron_from_tool,
        users=_neuron_users,
        ranges=True,
    ),
)

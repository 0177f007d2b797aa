"""The table of accelerators: how each vendor's show, and what confines a run to some of them.

NVIDIA's and AMD's have modules of their own. Of the others a host knows the number only, and the
processes that hold their files. Sent to hosts with ``probe``.
"""

import glob
from collections.abc import Callable, Sequence

from pytest_dlperf.node.amd import find_amd
from pytest_dlperf.node.host_tools import (
    DEV,
    SYS,
    Found,
    first_ids,
    holders,
    joined_names,
    numbered,
    text_of,
)
from pytest_dlperf.node.nvidia import VARIABLE, find_nvidia

_CLASSES = ("0x03", "0x12", "0xff")  # displays, accelerators, and what has no class
_INTEGRATED = "0000:00:02.0"
"""Graphics that are a part of an Intel processor have this place in every machine."""


class Kind:
    """One kind of accelerator.

    ``variables`` limit a process to some devices: what a run is given their ids in, then others of
    the same meaning. ``outer`` does so before them: ids count from 0 among those that it leaves.
    With ``ranges`` they may be written as in ``0-3``.
    """

    def __init__(
        self,
        name: str,
        find: "Callable[[], Found]",
        *,
        variables: "Sequence[str]",
        outer: str = "",
        ranges: bool = False,
    ) -> None:
        self.name = name
        self.find = find
        self.variables = variables
        self.outer = outer
        self.ranges = ranges


def _by_files(
    name: str, *files: str, variable: str, vendor: str = "", held: str = "", ranges: bool = False
) -> Kind:
    """Make the row of a kind whose devices are files: the first of these patterns with any counts.

    Others may have files of such names: then ``vendor`` is looked for on the PCI bus, which also
    tells a number of the device. ``held`` are files that processes hold which use a device.
    """

    def find() -> Found:
        count = len(next(filter(None, map(numbered, files)), []))
        models = _models(vendor) if vendor else []
        found = Found(first_ids(min(count, len(models)) if vendor else count))
        if found.ids and models:
            found.facts["device"] = joined_names([f"{name} {model}" for model in models])
        if found.ids and held:
            found.users = [(None, user) for user in holders(held)]
        return found

    return Kind(name, find, variables=(variable,), ranges=ranges)


def _models(vendor: str) -> "list[str]":
    """List the PCI numbers of a vendor's devices, without network cards, disks and the like."""
    folders = glob.glob(SYS + "/bus/pci/devices/*/")
    return [
        text_of(folder + "device").strip()
        for folder in folders
        if text_of(folder + "vendor").strip() == vendor
        and text_of(folder + "class").startswith(_CLASSES)
        and not folder.endswith(_INTEGRATED + "/")
    ]


KINDS = (
    Kind("nvidia", find_nvidia, variables=(VARIABLE,)),
    Kind(
        "amd",
        find_amd,
        variables=("HIP_VISIBLE_DEVICES", VARIABLE),
        outer="ROCR_VISIBLE_DEVICES",
    ),
    _by_files(
        "ascend",
        DEV + "/davinci*",
        variable="ASCEND_RT_VISIBLE_DEVICES",
        held=DEV + r"/davinci\d+",
    ),
    _by_files(
        "tpu",
        DEV + "/accel*",
        DEV + "/vfio/*",
        variable="TPU_VISIBLE_CHIPS",
        vendor="0x1ae0",
        held=DEV + r"/(accel|vfio/)\d+",
    ),
    # Monitors hold the files of Intel's as well.
    _by_files("intel", DEV + "/dri/renderD*", variable="ZE_AFFINITY_MASK", vendor="0x8086"),
    _by_files(
        "gaudi",
        DEV + "/accel/accel*",
        DEV + "/hl*",
        variable="HABANA_VISIBLE_MODULES",
        vendor="0x1da3",
        held=DEV + r"/(accel/accel|hl)\d+",
    ),
    # Cores are numbered within each chip.
    _by_files(
        "neuron",
        SYS + "/devices/virtual/neuron_device/neuron*/neuron_core*",
        variable="NEURON_RT_VISIBLE_CORES",
        held=DEV + r"/neuron\d+",
        ranges=True,
    ),
)

"""The table of accelerators: how each vendor's show, and what confines a run to some of them.

NVIDIA's and AMD's have modules of their own. Of the others a host knows the number only, and the
processes that hold their files. Sent to hosts with ``probe``.
"""

import glob
from collections import namedtuple
from collections.abc import Sequence

from pytest_dlperf.node.amd import find_amd
from pytest_dlperf.node.host_tools import (
    DEV,
    ROOT,
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


class Kind(namedtuple("Kind", ("name", "find", "variables", "outer"))):  # noqa: PYI024 - as typing
    """One kind of accelerator.

    ``variables`` limit a process to some devices: what a run is given their ids in, then others of
    the same meaning. ``outer`` does so before them: ids count from 0 among those that it leaves.
    """

    __slots__ = ()


def _by_files(name: str, variable: str, files: "Sequence[str]", vendor: str, held: str) -> Kind:
    """Make the row of a kind whose devices are files: the first of these patterns with any counts.

    Others may have files of such names: then ``vendor`` is looked for on the PCI bus, which also
    tells a number of the device. ``held`` are files that processes hold which use a device.
    """

    def find() -> Found:
        count = len(next(filter(None, (numbered(ROOT + pattern) for pattern in files)), []))
        models = _models(vendor) if vendor else []
        found = Found(first_ids(min(count, len(models)) if vendor else count))
        if found.ids and models:
            found.facts["device"] = joined_names([f"{name} {model}" for model in models])
        if found.ids and held:
            found.users = [(None, user) for user in holders(DEV + held)]
        return found

    return Kind(name, find, (variable,), "")


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


_CHIPS = ("/dev/accel*", "/dev/vfio/*")
_CORES = ("/sys/devices/virtual/neuron_device/neuron*/neuron_core*",)  # numbered within each chip
_MODULES = ("/dev/accel/accel*", "/dev/hl*")
KINDS = (
    Kind("nvidia", find_nvidia, (VARIABLE,), ""),
    Kind("amd", find_amd, ("HIP_VISIBLE_DEVICES", VARIABLE), "ROCR_VISIBLE_DEVICES"),
    _by_files("ascend", "ASCEND_RT_VISIBLE_DEVICES", ("/dev/davinci*",), "", r"/davinci\d+"),
    _by_files("tpu", "TPU_VISIBLE_CHIPS", _CHIPS, "0x1ae0", r"/(accel|vfio/)\d+"),
    # Monitors hold the files of Intel's as well.
    _by_files("intel", "ZE_AFFINITY_MASK", ("/dev/dri/renderD*",), "0x8086", ""),
    _by_files("gaudi", "HABANA_VISIBLE_MODULES", _MODULES, "0x1da3", r"/(accel/accel|hl)\d+"),
    _by_files("neuron", "NEURON_RT_VISIBLE_CORES", _CORES, "", r"/neuron\d+"),
)

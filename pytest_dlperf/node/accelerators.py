"""The accelerators of this host: which kind it has, how many, and who uses them.

NVIDIA's and AMD's have modules of their own. Of the others a host knows by its files how many there
are. Sent to hosts with ``probe``.
"""

import glob
import os
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_dlperf.node.amd import find_amd
from pytest_dlperf.node.host_tools import ROOT, SYS, Found, Later, first_ids, numbered, text_of
from pytest_dlperf.node.nvidia import VARIABLE, find_nvidia

_CLASSES = ("0x03", "0x12", "0xff")  # displays, accelerators, and what has no class
_INTEGRATED = "0000:00:02.0"
"""Graphics that are a part of an Intel processor have this place in every machine."""
_TPU_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""How so many chips of one host lie."""
NOTHING = {
    "accelerators": {"kind": None, "ids": [], "facts": [], "are_mixed": False},
    "hidden": "",
    "facts": {},
    "slices": False,
    "used_by": [],
    "refused": None,
    "failed": None,
}  # type: dict[str, Any]
"""What is found where no device is."""


class Kind(namedtuple("Kind", ("name", "find", "variables", "outer"))):  # noqa: PYI024 - as typing
    """One kind of accelerator.

    ``variables`` limit a process to some devices: what a run is given their ids in, then others of
    the same meaning. ``outer`` does so before them: ids count from 0 among those that it leaves.
    """

    __slots__ = ()


def _by_files(name: str, variable: str, files: "Sequence[str]", vendor: str) -> Kind:
    """Make the row of a kind whose devices are files: the first of these patterns with any counts.

    Others may have files of such names: then ``vendor`` is looked for on the PCI bus, which also
    tells a number of the device.
    """

    def find() -> Found:
        count = len(next(filter(None, (numbered(ROOT + pattern) for pattern in files)), []))
        models = _models(vendor) if vendor else []
        found = Found(first_ids(min(count, len(models)) if vendor else count))
        if found.ids and models:
            found.facts["device"] = " + ".join(sorted({f"{name} {model}" for model in models}))
        return found

    return Kind(name, find, (variable,), "")


def _models(vendor: str) -> "list[str]":
    """List the PCI numbers of a vendor's devices, without network cards, disks and the like."""
    return [
        text_of(folder + "device").strip()
        for folder in glob.glob(SYS + "/bus/pci/devices/*/")
        if text_of(folder + "vendor").strip() == vendor
        and text_of(folder + "class").startswith(_CLASSES)
        and not folder.endswith(_INTEGRATED + "/")
    ]


_CORES = ("/sys/devices/virtual/neuron_device/neuron*/neuron_core*",)  # numbered within each chip
KINDS = (
    Kind("nvidia", find_nvidia, (VARIABLE,), ""),
    Kind("amd", find_amd, ("HIP_VISIBLE_DEVICES", VARIABLE), "ROCR_VISIBLE_DEVICES"),
    _by_files("ascend", "ASCEND_RT_VISIBLE_DEVICES", ("/dev/davinci*",), ""),
    _by_files("tpu", "TPU_VISIBLE_CHIPS", ("/dev/accel*", "/dev/vfio/*"), "0x1ae0"),
    _by_files("intel", "ZE_AFFINITY_MASK", ("/dev/dri/renderD*",), "0x8086"),
    _by_files("gaudi", "HABANA_VISIBLE_MODULES", ("/dev/accel/accel*", "/dev/hl*"), "0x1da3"),
    _by_files("neuron", "NEURON_RT_VISIBLE_CORES", _CORES, ""),
)


def find_accelerators(only: "str | None", until: float) -> "dict[str, Any]":
    """Look for devices of ``only`` one kind, or of all; say what was found by then.

    ``accelerators``, and what has ``hidden`` others; ``facts`` of all; whether they are ``slices``;
    ``used_by``: processes behind the place of what they use; ``refused``: why devices cannot be
    used. Of two kinds that of which there are more is meant, or which comes first
    in the table. ``failed`` is what a tool says that finds none.
    """
    looks = [(kind, Later(kind.find)) for kind in KINDS if only in (None, kind.name)]
    best = NOTHING
    refused = failed = None
    for kind, look in looks:
        found = look.result(until, Found())
        refused, failed = refused or found.refused, failed or found.failed
        if not found.ids or found.refused:
            continue
        visible, origins, hidden = _visible(kind, found)
        most = best["accelerators"]
        if most["kind"] is None or len(visible) > len(most["ids"]):
            best = dict(
                NOTHING,
                accelerators={
                    "kind": kind.name,
                    "ids": visible,
                    "facts": [found.each.get(one, {}) for one in origins],
                    "are_mixed": len({each.get("device") for each in found.each.values()}) > 1,
                },
                hidden=hidden,
                facts=found.facts,
                slices=found.is_slice,
                used_by=[(origins.index(one), user) for one, user in found.users if one in origins],
            )
    if best["accelerators"]["ids"]:
        return best
    return dict(NOTHING if refused else best, refused=refused, failed=failed)


def confined(
    kind: "str | None", ids: "Sequence[str]", wanted: "Sequence[int]", *, mixed: bool = False
) -> "dict[str, str]":
    """Give the variables that confine a run to some of the devices that a host shows.

    ``wanted`` are places in ``ids``; ``mixed`` says that these are of several models. Without a
    known kind NVIDIA's variable is taken, which some others read as well.
    """
    row = next((row for row in KINDS if row.name == kind), KINDS[0])
    chosen = [ids[place] if place < len(ids) else str(place) for place in wanted]
    if row.name != "tpu":
        # CUDA counts the fastest first, where nvidia-smi counts by the bus.
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if mixed and row.name == "nvidia" else {}
        return dict(order, **{row.variables[0]: ",".join(chosen)})
    if len(chosen) == len(ids):
        return {}  # the library knows best how all of them lie
    found = {row.variables[0]: ",".join(chosen)}
    if len(chosen) in _TPU_BOUNDS:
        found["TPU_CHIPS_PER_PROCESS_BOUNDS"] = _TPU_BOUNDS[len(chosen)]
        found["TPU_PROCESS_BOUNDS"] = "1,1,1"
    return found


def _visible(kind: "Kind", found: "Found") -> "tuple[list[str], list[str], str]":
    """Leave out what the environment hides; say which these are among all, and what hides."""
    hidden = []
    ids = origins = found.ids
    variables = kind.variables
    if kind.outer in os.environ:
        hidden.append(kind.outer)
        origins = _named(ids, os.environ[kind.outer], {})
        ids = first_ids(len(origins))
        variables = variables[:1]
    for variable in [name for name in variables if name in os.environ][:1]:
        hidden.append(variable)
        left = _named(ids, os.environ[variable], found.names)
        ids, origins = left, [origins[ids.index(one)] for one in left]
    return ids, origins, ", ".join(f"{name}={os.environ[name]}" for name in hidden)


def _named(ids: "list[str]", said: str, names: "Mapping[str, str]") -> "list[str]":
    """Keep what a list names, up to what is no device or there twice, as the libraries do."""
    if said.strip().lower() == "all":
        return ids
    found = []  # type: list[str]
    for word in (part.strip() for part in said.split(",")):
        one = names.get(word, word)
        if one not in ids or one in found:
            break
        found.append(one)
    return found

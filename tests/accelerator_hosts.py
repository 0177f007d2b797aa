"""Hosts with accelerators of several vendors, as files and tools show them there.

The outputs are recorded ones, cut down to a few devices; those of slices, limits and failures of
NVIDIA's and all of Neuron's are made by their documented form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

# amd-smi static --asic --driver --json, of ROCm 6 (a list) and of ROCm 7 (under gpu_data).
MI300X = {
    "asic": {
        "market_name": "AMD Instinct MI300X",
        "vendor_id": "0x1002",
        "device_id": "0x74a1",
        "oam_id": 0,
        "num_compute_units": 304,
        "target_graphics_version": "gfx942",
    },
    "driver": {"name": "amdgpu", "version": "6.10.5"},
}
MI350X = {
    "asic": {"market_name": "AMD Instinct MI350X", "device_id": "0x75a0"},
    "driver": {"name": "amdgpu", "version": "6.18.3"},
}
AMD_SMI = json.dumps([{"gpu": number, **MI300X} for number in range(2)], indent=4)
AMD_SMI_OF_ROCM_7 = json.dumps({"gpu_data": [{"gpu": number, **MI350X} for number in range(2)]})
ROCM_SMI = json.dumps(
    {
        "card0": {
            "Card Series": "AMD Instinct MI325X",
            "Card Model": "0x74a5",
            "GFX Version": "gfx942",
        },
        "card1": {
            "Card Series": "AMD Instinct MI325X",
            "Card Model": "0x74a5",
            "GFX Version": "gfx942",
        },
        "system": {"Driver version": "6.8.5"},
    }
)

NVIDIA_SMI_TOPOLOGY = """\
\t\x1b[4mGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tSYS\t0-31\t0\t\tN/A
NIC0\tSYS\t X
"""

NPU_SMI_MAPPING = "".join(
    "\t" + "".join(f"{word:<31}" for word in row).rstrip() + "\n"
    for row in (
        ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name"),
        ("3", "0", "0", "Ascend 910B3"),
        ("3", "1", "-", "Mcu"),
        ("4", "0", "1", "Ascend 910B3"),
        ("4", "1", "-", "Mcu"),
    )
)
NPU_SMI = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.1                   Version: 24.1.1                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 3     910B3               | OK            | 98.5        42                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3439 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 3       0                 | 124528        | python3.8                | 17400                   |
+---------------------------+---------------+----------------------------------------------------+
| No running processes found in NPU 4                                                            |
+===========================+===============+====================================================+
"""
NPU_SMI_TOPOLOGY = """\
\t   NPU3       NPU4       CPU Affinity
NPU3       X          HCCS       144-167
NPU4       HCCS       X          144-167
"""

XPU_SMI_DISCOVERY = json.dumps(
    {
        "device_list": [
            {
                "device_function_type": "physical",
                "device_id": number,
                "device_name": name,
                "device_type": "GPU",
                "drm_device": f"/dev/dri/card{number}",
                "pci_bdf_address": address,
            }
            for number, name, address in (
                (0, "Intel(R) Data Center GPU Max 1550", "0000:29:00.0"),
                (1, "Intel(R) Data Center GPU Max 1550", "0000:3a:00.0"),
                (2, "Intel(R) UHD Graphics 770", "0000:00:02.0"),
            )
        ]
    }
)
XPU_SMI_DEVICE = json.dumps(
    {"device_id": 0, "driver_version": "I915_23.10.32_PSB_231129.32", "number_of_tiles": "2"}
)
XPU_SMI_PROCESSES = json.dumps(
    {
        "device_util_by_proc_list": [
            {"device_id": 0, "mem_size": 5726404, "process_id": 768707, "process_name": "python"},
            {"device_id": 0, "mem_size": 1507, "process_id": 769001, "process_name": "xpu-smi"},
        ]
    }
)
XPU_SMI_TOPOLOGY = """\
         GPU 0/0|GPU 0/1|GPU 1/0|GPU 1/1|CPU Affinity
GPU 0/0 |S      |MDF    |XL*    |XL16   |0-23,48-71
GPU 0/1 |MDF    |S      |XL16   |XL*    |0-23,48-71
"""

HL_SMI = """\
module_id, name, driver_version
2, HL-225, 1.17.1-fb2ce36
0, HL-225, 1.17.1-fb2ce36
6, HL-225, 1.17.1-fb2ce36
"""
# neuron-ls -j of a trn2.48xlarge, whose chips show two cores as one; two of 16 chips.
NEURON_LS = [
    {
        "neuron_device": chip,
        "bdf": bdf,
        "cpu_affinity": "48-95,144-191",
        "numa_node": "1",
        "connected_to": [12, 3, 4, 1],
        "nc_count": 4,
        "logical_neuroncore_config": 2,
        "memory_size": 103079215104,
        "neuroncore_ids": [chip * 4 + core for core in range(4)],
        "neuron_processes": processes,
    }
    for chip, bdf, processes in (
        (0, "cc:00.0", None),
        (
            1,
            "b5:00.0",
            [
                {
                    "pid": 113985,
                    "command": "python3 train.py --...",
                    "neuron_runtime_version": "2.0.0",
                }
            ],
        ),
    )
]


class RecordedHost:
    """A folder with tools that print what was recorded, and with files of the system."""

    def __init__(self, folder: Path) -> None:
        """Begin with neither."""
        self.tools = folder / "bin"
        self.root = folder / "root"
        for made in (self.tools, self.root):
            made.mkdir(parents=True)

    def tool(self, name: str, outputs: Mapping[str, str]) -> RecordedHost:
        """Add a tool that prints these texts, by its arguments; with others it fails."""
        cases = []
        for number, (arguments, printed) in enumerate(outputs.items()):
            file = self.tools / f"{name}.{number}"
            file.write_text(printed, encoding="utf-8")
            cases.append(f"'{arguments}') exec cat '{file}' ;;\n")
        return self.program(name, f'case "$*" in\n{"".join(cases)}*) exit 2 ;;\nesac\n')

    def program(self, name: str, script: str) -> RecordedHost:
        """Add a tool that is a shell script."""
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        path.chmod(0o755)
        return self

    def files(self, texts: Mapping[str, str]) -> RecordedHost:
        """Add files of the system, by their paths; a link where the text begins with ->."""
        for path, text in texts.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("->"):
                file.symlink_to(f"{self.root}/{text[2:]}")
            else:
                file.write_text(text, encoding="utf-8")
        return self

    def kfd(  # noqa: PLR0913 - what the kernel shows, by name
        self,
        number: int,
        *,
        target: int,
        device: int,
        count: int = 2,
        shown: int | None = None,
        buses: Sequence[int] = (),
    ) -> RecordedHost:
        """Add devices as AMD's kernel driver shows them, joined by XGMI, behind a processor.

        Of ``count`` only the first that are ``shown`` have a file below /dev, as in a container.
        ``buses`` are the numbers of those that they are on: parts of a device share one.
        """
        nodes = "sys/class/kfd/kfd/topology/nodes"
        self.files({f"{nodes}/0/gpu_id": "0\n", f"{nodes}/0/properties": "simd_count 0\n"})
        for node in range(1, count + 1):
            minor = 127 + node
            properties = (
                f"simd_count 1216\ngfx_target_version {target}\nvendor_id 4098\n"
                f"device_id {device}\ndrm_render_minor {minor}\nhive_id 1\nnum_xcc 8\n"
            )
            if buses:
                bus = buses[node - 1]
                part = buses[: node - 1].count(bus)
                properties += f"domain 0\nlocation_id {part << 28 | bus << 8}\nunique_id {bus}\n"
            other = node % count + 1
            self.files(
                {
                    f"{nodes}/{node}/gpu_id": f"{number + node}\n",
                    f"{nodes}/{node}/properties": properties,
                    f"{nodes}/{node}/io_links/0/properties": "type 2\nnode_from 1\nnode_to 0\n",
                    f"{nodes}/{node}/io_links/1/properties": f"type 11\nnode_to {other}\n",
                }
            )
            if shown is None or node <= shown:
                self.files({f"dev/dri/renderD{minor}": ""})
        return self

    def amd_settings(
        self, bus: int, *, compute: str, memory: str = "NPS1", cap_w: int = 750
    ) -> RecordedHost:
        """Split the device on a bus into parts, and cap it."""
        folder = f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
        return self.files(
            {
                f"{folder}/current_compute_partition": f"{compute}\n",
                f"{folder}/current_memory_partition": f"{memory}\n",
                f"{folder}/hwmon/hwmon3/power1_cap": f"{cap_w}000000\n",
            }
        )

    def pci(self, **devices: tuple[str, str]) -> RecordedHost:
        """Add devices of the bus: vendor and device by a name of one's own."""
        for name, (vendor, device) in devices.items():
            folder = f"sys/bus/pci/devices/{name}"
            self.files({f"{folder}/vendor": f"{vendor}\n", f"{folder}/device": f"{device}\n"})
        return self


def tpus(host: RecordedHost, device: str, files: str, *, chips: int, shown: int) -> RecordedHost:
    """A host with TPU chips and Google's network card; ``shown`` of the chips have a file."""
    host.pci(network=("0x1ae0", "0x0042"))
    host.pci(**{f"chip{number}": ("0x1ae0", device) for number in range(chips)})
    return host.files({f"dev/{files}{number}": "" for number in range(shown)})


A100 = "NVIDIA A100-SXM4-40GB"
T400 = "NVIDIA T400 4GB"
NVIDIA_QUERY = "--query-gpu=index,{} --format=csv,noheader"
_FIELDS = (
    "driver_version,power.limit,clocks.applications.graphics,compute_mode,ecc.mode.current,"
    "persistence_mode"
)
NVIDIA_FIELDS = NVIDIA_QUERY.format(_FIELDS + ",mig.mode.current")
NVML_ERROR = "Failed to initialize NVML: Unknown Error"
NVIDIA_SMI_MIG = """\
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|==================+======================+===========+=======================|
|  0    1   0   1  |     19MiB / 20096MiB | 56      0 |  4   0    2    0    0 |
|  0    2   0   0  |     10MiB / 20096MiB | 42      0 |  3   0    2    0    0 |
"""
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOST = "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost."
NVIDIA_USERS = "--query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader"


def nvidia_listed(*devices: str, slices: Mapping[int, Sequence[str]] | None = None) -> str:
    """What ``nvidia-smi -L`` prints of devices, some of them in slices of these profiles."""
    lines = []
    for number, name in enumerate(devices):
        lines.append(f"GPU {number}: {name} (UUID: GPU-{number}aaa)\n")
        for place, profile in enumerate((slices or {}).get(number, ())):
            lines.append(
                f"  MIG {profile}     Device  {place}: (UUID: MIG-{number}-{place}-{profile})\n"
            )
    return "".join(lines)


def nvidia_query(listed: str, fields: str, unknown: Sequence[str], *, is_silent: bool) -> str:
    """A script of an ``nvidia-smi`` that refuses some fields, and names the first of them or not.

    ``fields`` are those of each device behind its number and driver.
    """
    names = [*_FIELDS.split(","), "mig.mode.current"]
    known = dict(zip(names, ["550.54.15", *fields.split(", ")], strict=True))
    said = f"printf '%s' '{listed}'"
    refused = (
        "exit 2"
        if is_silent
        else """echo "Field \\"$field\\" is not a valid field to query."; exit 2"""
    )
    values = "".join(f"{name}) value='{value}' ;;\n" for name, value in known.items())
    return f"""\
case "$*" in
-L) {said}; exit ;;
--query-gpu=*--format=csv,noheader) ;;
*) exit 2 ;;
esac
asked=${{1#--query-gpu=}}
for field in $(echo "$asked" | tr , ' '); do
case " {" ".join(unknown)} " in *" $field "*) {refused} ;; esac
done
for device in 0 1; do
row=
for field in $(echo "$asked" | tr , ' '); do
case "$field" in
index) value=$device ;;
{values}esac
row="$row, $value"
done
echo "${{row#, }}"
done
"""


def nvidia_hosts(folder: Path) -> dict[str, RecordedHost]:
    """Make hosts whose NVIDIA devices are sliced, mixed, capped, shared or broken; by name."""

    def told(name: str, listed: str, **outputs: str) -> RecordedHost:
        names = {"fields": NVIDIA_FIELDS, "users": NVIDIA_USERS}
        printed = {names[kind]: text for kind, text in outputs.items()}
        return RecordedHost(folder / name).tool("nvidia-smi", {"-L": listed, **printed})

    def failed(name: str, said: str, code: int, files: int) -> RecordedHost:
        host = RecordedHost(folder / name).program("nvidia-smi", f"echo '{said}'; exit {code}\n")
        return host.files({f"dev/nvidia{number}": "" for number in range(files)})

    def fields(*rows: str) -> str:
        return "".join(f"{number}, 550.54.15, {row}\n" for number, row in enumerate(rows))

    two = nvidia_listed(A100, A100)
    usual = "400.00 W, 1410 MHz, Default, Enabled, Enabled, Disabled"
    in_mig_mode = usual.replace("Disabled", "Enabled")
    eight = {f"dev/nvidia{number}": "" for number in range(8)}
    sliced = nvidia_listed(A100, slices={0: ["3g.20gb", "4g.20gb"]})
    seven = nvidia_listed(A100, slices={0: ["1g.5gb"] * 7})
    beside = nvidia_listed(A100, A100, slices={0: ["3g.20gb"]})
    mixed = nvidia_listed(T400, A100)
    hosts = {
        "mig": told("mig", sliced, fields=fields(in_mig_mode)),
        "mig_empty": told("mig_empty", nvidia_listed(A100), fields=fields(in_mig_mode)),
        "mig_empty_beside": told("mig_empty_beside", two, fields=fields(in_mig_mode, usual)),
        "mig_chosen": told("mig_chosen", sliced),
        "mig_old_name": RecordedHost(folder / "mig_old_name"),
        "mig_container": told("mig_container", seven),
        "mig_beside": told("mig_beside", beside),
        "mig_by_number": told("mig_by_number", seven),
        "mig_beside_by_number": told("mig_beside_by_number", beside),
        "mig_of_number": told("mig_of_number", beside),
        "mixed": told("mixed", mixed),
        "mixed_hidden": told("mixed_hidden", mixed),
        "by_uuid": told("by_uuid", mixed),
        "of_no_such_uuid": told("of_no_such_uuid", two),
        "twice": told("twice", two),
        "capped": told(
            "capped",
            two,
            fields=fields(
                "300.00 W, 1095 MHz, Exclusive_Process, Disabled, Disabled, Disabled", usual
            ),
        ),
        "silent_fields": told(
            "silent_fields",
            two,
            fields=fields("[Insufficient Permissions], [N/A], Default, N/A, Enabled, [N/A]"),
        ),
        "without_names": told("without_names", nvidia_listed("[N/A]")),
        "nvidia_files": RecordedHost(folder / "nvidia_files").files(eight),
        "nvidia_all": told("nvidia_all", two),
        "nvidia_hidden_by_minus_1": told("nvidia_hidden_by_minus_1", two),
        "of_two_such_uuids": told("of_two_such_uuids", two),
        "needs_reset": told(
            "needs_reset",
            two,
            fields=fields(usual, usual.replace("Default", "[GPU requires reset]")),
        ),
        "unknown_error": told(
            "unknown_error", two, fields=fields(usual, usual.replace("400.00 W", "[Unknown Error]"))
        ),
        "served_to_a_client": told(
            "served_to_a_client",
            two,
            users="GPU-0aaa, 90, nvidia-cuda-mps-server\nGPU-0aaa, 91, python\n",
        ),
        "served": told("served", two, users="GPU-0aaa, 90, nvidia-cuda-mps-server\n"),
        "used_elsewhere": told("used_elsewhere", two, users="GPU-1aaa, 4711, python\n"),
        "err_field": told(
            "err_field", two, fields=fields(usual, usual.replace("400.00 W", "ERR!"))
        ),
        "lost_field": told(
            "lost_field", two, fields=fields(usual, usual.replace("Default", "[GPU is Lost]"))
        ),
        "no_devices": failed("no_devices", "No devices were found", 6, 0),
        "no_devices_0": failed("no_devices_0", "No devices were found", 0, 8),
        "other_driver": failed("other_driver", f"{MISMATCH}\nNVML library version: 550.54", 18, 8),
        "lost": failed("lost", f"{LOST}\n{two}", 15, 8),
        "lost_0": failed("lost_0", f"{two}{LOST}", 0, 8),
        "no_driver": failed("no_driver", "NVIDIA-SMI has failed", 9, 0),
        "no_library": failed("no_library", NVML_ERROR, 255, 0),
        "no_driver_beside_amd": failed("no_driver_beside_amd", NVML_ERROR, 255, 0),
    }
    hosts["no_driver_beside_amd"].kfd(1, target=90402, device=0x74A1)
    hosts["mig_old_name"].tool("nvidia-smi", {"-L": sliced, "": NVIDIA_SMI_MIG})
    for name, unknown in {
        "older_tool": ("mig.mode.current",),
        "newer_tool": ("clocks.applications.graphics",),
        "oldest_tool": ("power.limit", "persistence_mode", "compute_mode", "mig.mode.current"),
        "silent_tool": ("persistence_mode",),
    }.items():
        is_silent = name == "silent_tool"
        hosts[name] = RecordedHost(folder / name).program(
            "nvidia-smi", nvidia_query(two, usual, unknown, is_silent=is_silent)
        )
    hosts["lost_beside_amd"] = failed("lost_beside_amd", "GPU is lost", 15, 1).kfd(
        1, target=90402, device=0x74A1
    )
    return hosts


def neuron_hosts(folder: Path) -> dict[str, RecordedHost]:
    """Make hosts with AWS's Neuron chips; by name."""
    names = ("neuron", "neuron_older", "neuron_chosen", "neuron_failed")
    hosts = {name: RecordedHost(folder / name) for name in names}
    hosts["neuron"].tool("neuron-ls", {"-j": json.dumps(NEURON_LS)}).files(
        {
            "proc/113985/comm": "python3\n",
            **{
                f"sys/devices/virtual/neuron_device/neuron{chip}/info/architecture/device_name": (
                    "Trainium2\n"
                )
                for chip in range(2)
            },
        }
    )
    older = [{"neuron_device": chip, "bdf": "0", "nc_count": 2} for chip in range(2)]
    hosts["neuron_older"].program("neuron-ls", "exit 1\n").files(
        {"opt/aws/neuron/bin/neuron-ls": f"#!/bin/sh\necho '{json.dumps(older)}'\n"}
    )
    (hosts["neuron_older"].root / "opt/aws/neuron/bin/neuron-ls").chmod(0o755)
    hosts["neuron_chosen"].tool("neuron-ls", {"-j": json.dumps(NEURON_LS)})
    hosts["neuron_failed"].program("neuron-ls", "echo no devices found; exit 1\n").files(
        {f"dev/neuron{chip}": "" for chip in range(2)}
    )
    return hosts


def recorded_hosts(folder: Path) -> dict[str, RecordedHost]:
    """Make a host of each kind, and some that deceive; by name."""
    hosts = {
        name: RecordedHost(folder / name)
        for name in (
            *("amd", "amd_rocm_7", "amd_old_tool", "amd_no_tool", "amd_sibling", "amd_container"),
            *("amd_laptop", "amd_slurm", "ascend", "ascend_no_tool", "tpu", "tpu_vfio", "tpu_v3"),
            *("tpu_container", "intel", "intel_cards", "intel_no_tool", "gaudi", "gaudi_no_tool"),
            *("nvidia_single", "two_kinds", "hidden", "all_hidden", "nonsense", "hanging", "none"),
            *("hanging_no_files", "intel_tile_used", "amd_hidden_user"),
            *("amd_parts", "amd_warning", "ascend_plain", "intel_selected"),
            *("amd_mixed_parts", "amd_hidden_parts", "amd_uuid"),
            *("amd_whole", "amd_chosen", "ascend_chosen", "tpu_chosen", "tpu_new", "intel_gpus"),
            *("intel_tile", "gaudi_chosen"),
        )
    }
    hosts |= nvidia_hosts(folder) | neuron_hosts(folder)
    amd_smi = {"static --asic --driver --json": AMD_SMI}
    hosts["amd"].kfd(4710, target=90402, device=0x74A1).tool("amd-smi", amd_smi).files(
        {
            "sys/module/amdgpu/version": "6.10.5\n",
            "opt/rocm/.info/version": "6.3.1-48\n",
            "sys/class/kfd/kfd/proc/812/vram_4711": "8589934592\n",
            "sys/class/kfd/kfd/proc/900/vram_4711": "0\n",  # it looks only
            "proc/812/comm": "python3\n",
        }
    )
    warned = "WARNING: User is missing the following required groups: render, video.\n"
    hosts["amd_rocm_7"].tool(
        "amd-smi", {"static --asic --driver --json": warned + AMD_SMI_OF_ROCM_7}
    )
    mi300x = {"target": 90402, "device": 0x74A1}
    hosts["amd_parts"].kfd(1, **mi300x, count=8, buses=[5] * 8).tool(
        "amd-smi", amd_smi
    ).amd_settings(5, compute="CPX", memory="NPS4")
    hosts["amd_whole"].kfd(1, **mi300x, buses=[5, 6]).tool("amd-smi", amd_smi).amd_settings(
        5, compute="SPX"
    ).amd_settings(6, compute="SPX", cap_w=500)
    for name in ("amd_mixed_parts", "amd_hidden_parts", "amd_uuid", "amd_hidden_user"):
        hosts[name].kfd(1, **mi300x, count=5, buses=[5, 5, 5, 5, 6]).amd_settings(
            5, compute="DPX"
        ).amd_settings(6, compute="SPX", cap_w=500).files(
            {"sys/class/kfd/kfd/proc/812/vram_6": "1\n", "proc/812/comm": "python3\n"}
        )
    hosts["amd_chosen"].kfd(1, target=90402, device=0x74A1, count=4)
    warned = f"[WARNING] no access to gpu 3\n{AMD_SMI}\nWARNING: old\n"
    hosts["amd_warning"].tool("amd-smi", {"static --asic --driver --json": warned})
    hosts["ascend_plain"].tool("npu-smi", {"info -m": NPU_SMI_MAPPING.replace("Ascend ", "")})
    for name in ("intel_selected", "intel_gpus", "intel_tile"):
        hosts[name].tool("xpu-smi", {"discovery -j": XPU_SMI_DISCOVERY})
    hosts["ascend_chosen"].tool("npu-smi", {"info -m": NPU_SMI_MAPPING})
    tpus(hosts["tpu_chosen"], "0x0063", "accel", chips=4, shown=4)
    tpus(hosts["tpu_new"], "0x0fff", "accel", chips=4, shown=4)
    hosts["gaudi_chosen"].tool("hl-smi", {"-Q module_id,name,driver_version -f csv": HL_SMI})
    hosts["amd_old_tool"].kfd(1, target=90402, device=0x74A5).tool(
        "rocm-smi", {"--showproductname --showdriverversion --json": ROCM_SMI}
    )
    hosts["amd_no_tool"].kfd(1, target=90402, device=0x74A1)
    hosts["amd_sibling"].kfd(1, target=90402, device=0x74A5)
    hosts["amd_container"].kfd(1, target=90010, device=0x740C, count=4, shown=2)
    hosts["amd_laptop"].kfd(1, target=100306, device=0x164E, count=1).files(
        {"sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties": "size_in_bytes 536870912\n"}
    )
    hosts["amd_slurm"].kfd(1, target=90402, device=0x74A1, count=4)
    hosts["ascend"].tool(
        "npu-smi",
        {"info -m": NPU_SMI_MAPPING, "info": NPU_SMI, "info -t topo": NPU_SMI_TOPOLOGY},
    ).files(
        {
            "usr/local/Ascend/ascend-toolkit/latest/version.info": (
                "Version=7.6.0.1.220\nversion_dir=8.0.0\n"
            )
        }
    )
    failed = (
        "echo 'dcmi model initialized failed, because the device is used. ret is -8020'; exit 1\n"
    )
    davinci = {f"dev/davinci{number}": "" for number in range(8)}
    hosts["ascend_no_tool"].program("npu-smi", failed).files({**davinci, "dev/davinci_manager": ""})
    tpus(hosts["tpu"], "0x0063", "accel", chips=4, shown=4).files(
        {"proc/77/comm": "python3\n", "proc/77/fd/9": "->dev/accel0"}
    )
    tpus(hosts["tpu_vfio"], "0x0062", "vfio/", chips=4, shown=4).files({"dev/vfio/vfio": ""})
    tpus(hosts["tpu_v3"], "0x0027", "accel", chips=4, shown=4)
    tpus(hosts["tpu_container"], "0x006f", "vfio/", chips=8, shown=1)
    xpu_smi = {
        "discovery -j": XPU_SMI_DISCOVERY,
        "discovery -d 0 -j": XPU_SMI_DEVICE,
        "ps -j": XPU_SMI_PROCESSES,
        "topology -m": XPU_SMI_TOPOLOGY,
    }
    hosts["intel"].tool("xpu-smi", xpu_smi)
    hosts["intel_cards"].tool("xpu-smi", xpu_smi)
    hosts["intel_tile_used"].tool("xpu-smi", xpu_smi)
    for minor, place, device in ((128, "0000:00:02.0", "0x4680"), (129, "0000:29:00.0", "0x0bd5")):
        hosts["intel_no_tool"].files(
            {
                f"dev/dri/renderD{minor}": "",
                f"sys/devices/{place}/vendor": "0x8086\n",
                f"sys/devices/{place}/device": f"{device}\n",
                f"sys/class/drm/renderD{minor}/device": f"->sys/devices/{place}",
            }
        )
    hosts["gaudi"].tool("hl-smi", {"-Q module_id,name,driver_version -f csv": HL_SMI})
    for number in range(8):
        hosts["gaudi_no_tool"].files(
            {
                f"dev/accel/accel{number}": "",
                f"dev/accel/accel_controlD{number}": "",
                f"sys/class/accel/accel{number}/device/vendor": "0x1da3\n",
            }
        )
    one_nvidia = "GPU 0: NVIDIA T400 4GB (UUID: GPU-1)\n"
    hosts["nvidia_single"].tool("nvidia-smi", {"-L": one_nvidia, "topo -m": NVIDIA_SMI_TOPOLOGY})
    hosts["two_kinds"].kfd(1, target=90402, device=0x74A1).tool("nvidia-smi", {"-L": one_nvidia})
    listed = "".join(f"GPU {number}: NVIDIA H100 (UUID: GPU-{number})\n" for number in range(8))
    for name in ("hidden", "all_hidden"):
        hosts[name].tool("nvidia-smi", {"-L": listed})
    hosts["nonsense"].program("nvidia-smi", "echo '4711, a'\n").program(
        "amd-smi", "echo '{\"gpu_data\": 3}'\n"
    ).program("rocm-smi", "printf '\\377\\000[[[['\n").program(
        "npu-smi", "yes '| 3 3 | OK |'\n"
    ).program("xpu-smi", "echo null\n").program("hl-smi", "echo module_id, name; echo 1\n")
    for name in ("nvidia-smi", "amd-smi", "rocm-smi", "npu-smi", "xpu-smi", "hl-smi", "neuron-ls"):
        hosts["hanging"].program(name, "trap '' TERM\necho $0 >> $RECORDED/asked\nexec sleep 600\n")
    hosts["hanging_no_files"].program("nvidia-smi", "exec sleep 600\n")
    hosts["hanging"].files({f"dev/nvidia{number}": "" for number in range(2)})
    return hosts


VARIABLES = {
    "mig_old_name": {"CUDA_VISIBLE_DEVICES": "MIG-GPU-0aaa/1/0"},
    "amd_hidden_parts": {"ROCR_VISIBLE_DEVICES": "3,4", "HIP_VISIBLE_DEVICES": "1"},
    "amd_hidden_user": {"ROCR_VISIBLE_DEVICES": "0,1"},
    "intel_tile_used": {"ZE_AFFINITY_MASK": "0.1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"},
    "amd_uuid": {"ROCR_VISIBLE_DEVICES": f"GPU-{6:016x}"},
    "amd_slurm": {"ROCR_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"},
    "intel_cards": {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"},
    "tpu_v3": {"TPU_ACCELERATOR_TYPE": "v3-8"},
    "hidden": {"CUDA_VISIBLE_DEVICES": "4,5"},
    "all_hidden": {"CUDA_VISIBLE_DEVICES": ""},
    "mig_chosen": {"CUDA_VISIBLE_DEVICES": "MIG-0-1-4g.20gb"},
    "mig_by_number": {"CUDA_VISIBLE_DEVICES": "0"},
    "mig_beside_by_number": {"CUDA_VISIBLE_DEVICES": "1"},
    "mig_of_number": {"CUDA_VISIBLE_DEVICES": "0"},
    "mixed_hidden": {"CUDA_VISIBLE_DEVICES": "1"},
    "by_uuid": {"CUDA_VISIBLE_DEVICES": "GPU-1"},
    "of_no_such_uuid": {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-7"},
    "twice": {"CUDA_VISIBLE_DEVICES": "0,0"},
    "intel_selected": {"ONEAPI_DEVICE_SELECTOR": "level_zero:0,1"},
    "intel_gpus": {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu"},
    "intel_tile": {"ZE_AFFINITY_MASK": "0.1"},
    "amd_chosen": {"HIP_VISIBLE_DEVICES": "3,1"},
    "ascend_chosen": {"ASCEND_RT_VISIBLE_DEVICES": "1"},
    "tpu_chosen": {"TPU_VISIBLE_CHIPS": "0,1"},
    "gaudi_chosen": {"HABANA_VISIBLE_MODULES": "0,6"},
    "neuron_chosen": {"NEURON_RT_VISIBLE_CORES": "2-4,7"},
    "nvidia_all": {"CUDA_VISIBLE_DEVICES": "all"},
    "nvidia_hidden_by_minus_1": {"CUDA_VISIBLE_DEVICES": "-1"},
    "of_two_such_uuids": {"CUDA_VISIBLE_DEVICES": "GPU-"},
}
"""The environment of some hosts, by name."""

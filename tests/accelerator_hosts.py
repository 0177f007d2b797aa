"""Hosts with accelerators of several vendors, as files and NVIDIA's tool show them there.

They are made by the documented forms, and cut down to a few devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

A100 = "NVIDIA A100-SXM4-40GB"
T400 = "NVIDIA T400 4GB"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOST = "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost."


class RecordedHost:
    """A folder with tools that print what was recorded, and with files of the system."""

    def __init__(self, folder: Path) -> None:
        """Begin with neither."""
        self.tools = folder / "bin"
        self.root = folder / "root"
        for made in (self.tools, self.root):
            made.mkdir(parents=True)

    def program(self, name: str, script: str) -> RecordedHost:
        """Add a tool that is a shell script."""
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
        path.chmod(0o755)
        return self

    def nvidia(self, *gpus: str, around: str = "", code: int = 0) -> RecordedHost:
        """Add NVIDIA's tool with its report of these devices, and what it prints around that."""
        report = f"{HEAD}{''.join(gpus)}</nvidia_smi_log>\n" if gpus else ""
        (self.tools / "report").write_text(f"{report}{around}", encoding="utf-8")
        script = f'[ "$*" = "-q -x" ] || exit 2\n/bin/cat {self.tools}/report\nexit {code}\n'
        return self.program("nvidia-smi", script)

    def files(self, texts: Mapping[str, str]) -> RecordedHost:
        """Add files of the system, by their paths."""
        for path, text in texts.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return self

    def devices(self, path: str, count: int) -> RecordedHost:
        """Add so many files of devices."""
        return self.files({f"dev/{path}{number}": "" for number in range(count)})

    def kfd(
        self, device: int = 0x74A1, *, count: int = 2, buses: Sequence[int] = ()
    ) -> RecordedHost:
        """Add devices as AMD's kernel driver shows them, behind a processor.

        ``buses`` are the numbers of those that they are on: parts of a device share one.
        """
        nodes = "sys/class/kfd/kfd/topology/nodes"
        self.files({f"{nodes}/0/gpu_id": "0\n", f"{nodes}/0/properties": "simd_count 0\n"})
        for node in range(1, count + 1):
            minor = 127 + node
            properties = (
                f"simd_count 1216\ngfx_target_version 90402\nvendor_id 4098\n"
                f"device_id {device}\ndrm_render_minor {minor}\n"
            )
            if buses:
                properties += f"domain 0\nlocation_id {node << 28 | buses[node - 1] << 8}\n"
            self.files(
                {f"{nodes}/{node}/gpu_id": f"{node}\n", f"{nodes}/{node}/properties": properties}
            )
            self.files({f"dev/dri/renderD{minor}": ""})
        return self

    def amd_cap(self, bus: int, watts: int) -> RecordedHost:
        """Cap the device on a bus."""
        folder = f"sys/bus/pci/devices/0000:{bus:02x}:00.0"
        return self.files({f"{folder}/hwmon/hwmon3/power1_cap": f"{watts}000000\n"})

    def pci(self, vendor: str, *devices: str, kind: str = "0x120000") -> RecordedHost:
        """Add devices of a class to the bus; a place may stand before the number of one."""
        for number, device in enumerate(devices):
            place, _, model = device.rpartition(" ")
            folder = f"sys/bus/pci/devices/{place or f'0000:{kind[2:4]}:0{number}.0'}"
            for name, text in (("vendor", vendor), ("device", model), ("class", kind)):
                self.files({f"{folder}/{name}": f"{text}\n"})
        return self


HEAD = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Sat Nov 28 20:00:00 2026</timestamp>
\t<driver_version>550.54.15</driver_version>
\t<cuda_version>12.4</cuda_version>
"""


def gpu(  # noqa: PLR0913 - what the tool says of a device, by name
    number: int,
    name: str = A100,
    *,
    mig: str = "Disabled",
    power: str = "400.00 W",
    clock: str = "1410 MHz",
    mode: str = "Default",
    users: Sequence[tuple[int, str, str]] = (),
) -> str:
    """What the tool reports of one device."""
    processes = "".join(
        f"<process_info><gpu_instance_id>N/A</gpu_instance_id><pid>{pid}</pid><type>{kind}</type>"
        f"<process_name>{program}</process_name><used_memory>4 MiB</used_memory></process_info>"
        for pid, kind, program in users
    )
    return f"""\
\t<gpu id="00000000:{number:02X}:00.0">
\t\t<product_name>{name}</product_name>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode>
\t\t<uuid>GPU-{number}aaa</uuid>
\t\t<compute_mode>{mode}</compute_mode>
\t\t<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
\t\t<gpu_power_readings><current_power_limit>{power}</current_power_limit></gpu_power_readings>
\t\t<module_power_readings><current_power_limit>N/A</current_power_limit></module_power_readings>
\t\t<applications_clocks><graphics_clock>{clock}</graphics_clock></applications_clocks>
\t\t<processes>{processes}</processes>
\t</gpu>
"""


def recorded_hosts(folder: Path) -> dict[str, RecordedHost]:
    """Make a host of each kind, and some that deceive; by name."""

    def host(name: str) -> RecordedHost:
        hosts[name] = RecordedHost(folder / name)
        return hosts[name]

    hosts: dict[str, RecordedHost] = {}
    for name in ("nvidia", "hidden", "all_hidden", "by_uuid"):
        host(name).nvidia(gpu(0), gpu(1))
    host("nvidia_files").devices("nvidia", 8)
    host("mixed").nvidia(gpu(0, T400), gpu(1))
    host("capped").nvidia(gpu(0, power="300.00 W", mode="Exclusive_Process"), gpu(1))
    server = (90, "C", "nvidia-cuda-mps-server")
    host("served").nvidia(gpu(0, users=[server, (7, "G", "Xorg")]), gpu(1))
    host("served_to_a_client").nvidia(gpu(0, users=[server, (91, "M+C", "python")]), gpu(1))
    host("used_elsewhere").nvidia(gpu(0), gpu(1, users=[(4711, "C", "python")]))
    for name in ("mig", "mig_chosen"):
        host(name).nvidia(gpu(0, mig="Enabled"), gpu(1, mig="Enabled"))
    host("mig_beside").nvidia(gpu(0, mig="Enabled"), gpu(1))
    host("err_field").nvidia(gpu(0), gpu(1, power="ERR!"))
    host("no_devices").nvidia(around="No devices were found\n", code=6)
    host("other_driver").nvidia(around=f"{MISMATCH}\nNVML library version: 550.54\n", code=18)
    host("lost").nvidia(gpu(0), around=f"{LOST}\n", code=15)
    host("no_driver").nvidia(around="NVIDIA-SMI has failed\n", code=9)
    host("nonsense").program("nvidia-smi", "echo '4711, a'\n")
    host("hanging").program("nvidia-smi", "trap '' TERM\nexec sleep 600\n").devices("nvidia", 2)
    host("hanging_no_files").program("nvidia-smi", "exec sleep 600\n")
    host("none")

    host("amd").kfd().files(
        {
            "sys/module/amdgpu/version": "6.10.5\n",
            "opt/rocm/.info/version": "6.3.1-48\n",
            "sys/class/kfd/kfd/proc/812/vram_1": "8589934592\n",
            "sys/class/kfd/kfd/proc/900/vram_1": "0\n",  # it looks only
            "proc/812/comm": "python3\n",
        }
    )
    host("amd_sibling").kfd(0x74A5)
    host("amd_slurm").kfd(count=4)
    host("amd_parts").kfd(count=5, buses=[5, 5, 5, 5, 6]).amd_cap(5, 750)
    hosts["amd_parts"].amd_cap(6, 500).files(
        {"sys/class/kfd/kfd/proc/812/vram_5": "1\n", "proc/812/comm": "python3\n"}
    )

    host("ascend").devices("davinci", 8).files({"dev/davinci_manager": ""})
    host("tpu").devices("accel", 4).pci("0x1ae0", *["0x0063"] * 4, kind="0xff0000")
    host("tpu_container").devices("vfio/", 1).pci("0x1ae0", *["0x006f"] * 8)
    host("intel").devices("dri/renderD12", 3).pci(
        *("0x8086", "0000:00:02.0 0x4680", "0000:29:00.0 0x0bd5", "0000:3a:00.0 0x0bd5"),
        kind="0x038000",
    )
    host("gaudi").devices("accel/accel", 8).pci("0x1da3", *["0x1020"] * 8)
    cores = "sys/devices/virtual/neuron_device/neuron{}/neuron_core{}/stats"
    for name in ("neuron", "neuron_chosen"):
        host(name).files({cores.format(n, m): "" for n in range(2) for m in range(4)})
    return hosts


VARIABLES = {
    "hidden": {"CUDA_VISIBLE_DEVICES": "1"},
    "all_hidden": {"CUDA_VISIBLE_DEVICES": ""},
    "by_uuid": {"CUDA_VISIBLE_DEVICES": "GPU-1aaa,GPU-7"},
    "mig_chosen": {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"},
    "amd_slurm": {"ROCR_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"},
    "neuron_chosen": {"NEURON_RT_VISIBLE_CORES": "2,3,7"},
}
"""The environment of some hosts, by name."""

"""Accelerators of each vendor are counted, named and confined, whatever their tools do."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from accelerator_hosts import (
    A100,
    HL_SMI,
    LOST,
    MISMATCH,
    NVML_ERROR,
    T400,
    VARIABLES,
    RecordedHost,
    recorded_hosts,
)
from clusters.processes import LONG_S
from suites import Suite
from test_documentation import CLUSTERS, table
from trainers import TinySystem

from pytest_dlperf.config.launch_spec import Devices
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.preflight import HostReport, Requirements, fingerprint_of, look_at_hosts
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.differences import MeasuredOn, Sides, differences_of
from pytest_dlperf.model.measurement import Fingerprint, differences
from pytest_dlperf.node import host_tools
from pytest_dlperf.node.accelerators import confined
from pytest_dlperf.node.vendors import KINDS

NEEDED: Final = Requirements(python=sys.executable)
HANGING_S: Final = 0.6
"""How long the tools may take that hang."""


class RecordedHosts(Launcher):
    """A launcher to recorded hosts, whose tools and files are all that there is."""

    name = "recorded"
    remote = False

    def __init__(self, hosts: Mapping[str, RecordedHost]) -> None:
        super().__init__(sys.executable)
        self._hosts = hosts

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        del alongside
        there = self._hosts[host.name]
        set_there = VARIABLES.get(host.name, {})
        return [
            *("env", "-i", f"PATH={there.tools}:/usr/bin:/bin", f"RECORDED={there.root}"),
            f"TOOL_LIMIT_S={HANGING_S if host.name.startswith('hanging') else LONG_S}",
            *(f"{name}={value}" for name, value in set_there.items()),
            *program,
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def reports(folder: Path) -> Iterator[dict[str, HostReport]]:
    """What is found on all hosts that were recorded."""
    hosts = recorded_hosts(folder)
    source = Path(host_tools.__file__).read_text(encoding="utf-8")
    sent = folder / "host_tools.py"
    for old, new in (
        ('ROOT = ""', 'ROOT = os.environ["RECORDED"]'),
        ("TOOL_LIMIT_S = 8.0", 'TOOL_LIMIT_S = float(os.environ["TOOL_LIMIT_S"])'),
    ):
        assert old in source
        source = source.replace(old, new)
    sent.write_text(source, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_tools, "__file__", str(sent))
        declared = [Host(name=name, address=name, devices=8) for name in hosts]
        reports = look_at_hosts(RecordedHosts(hosts), declared, NEEDED, lock=os.urandom(8).hex())
        yield reports


MI300X: Final = "AMD Instinct MI300X"
AMD_LINKED: Final = {"driver": "6.10.5", "interconnect": "xgmi"}
NVIDIA_SETTINGS: Final = {
    "driver": "550.54.15",
    "power_limit": "400 W",
    "application_clock": "1410 MHz",
    "compute_mode": "Default",
    "ecc": "Enabled",
    "persistence": "Enabled",
    "mig": "Disabled",
}


def settings_without(*unknown: str) -> dict[str, str]:
    """What is told by a tool that refuses some fields."""
    known = {name: said for name, said in NVIDIA_SETTINGS.items() if name not in unknown}
    return {"device": A100, **known}


MAKE_SOME: Final = "make some (nvidia-smi mig -cgi PROFILE -C), or disable it (nvidia-smi -mig 0)"
NONE_FOUND: Final = "8 devices were declared, and none is found"
TOO_FEW: Final = "8 devices were declared, and it shows 2"
GFX942: Final = "AMD gfx942 (0x74a1)"
MAX_1550: Final = "Intel(R) Data Center GPU Max 1550"


@pytest.mark.parametrize(
    ("host", "kind", "ids", "facts"),
    [
        (
            *("amd", "amd", "01"),
            {"device": MI300X, "driver": "6.10.5", "rocm": "6.3.1", "interconnect": "xgmi"},
        ),
        ("amd_rocm_7", "amd", "01", {"device": "AMD Instinct MI350X", "driver": "6.18.3"}),
        (
            *("amd_old_tool", "amd", "01"),
            {"device": "AMD Instinct MI325X", "driver": "6.8.5", "interconnect": "xgmi"},
        ),
        ("amd_no_tool", "amd", "01", {"device": "AMD gfx942 (0x74a1)", "interconnect": "xgmi"}),
        ("amd_sibling", "amd", "01", {"device": "AMD gfx942 (0x74a5)", "interconnect": "xgmi"}),
        ("amd_container", "amd", "01", {"device": "AMD gfx90a (0x740c)", "interconnect": "xgmi"}),
        ("amd_laptop", None, "", {}),
        ("amd_slurm", "amd", "01", {"device": "AMD gfx942 (0x74a1)", "interconnect": "xgmi"}),
        (
            *("ascend", "ascend", "01"),
            {"device": "Ascend 910B3", "driver": "24.1.1", "cann": "8.0.0", "interconnect": "hccs"},
        ),
        ("ascend_no_tool", "ascend", "01234567", {}),
        ("tpu", "tpu", "0123", {"device": "TPU v5e"}),
        ("tpu_vfio", "tpu", "0123", {"device": "TPU v5p"}),
        ("tpu_v3", "tpu", "0123", {"device": "TPU v3"}),
        ("tpu_container", "tpu", "0", {"device": "TPU v6e"}),
        (
            *("intel", "intel", "0123"),
            {
                "device": MAX_1550,
                "driver": "I915_23.10.32_PSB_231129.32",
                "interconnect": "xelink",
            },
        ),
        (
            *("intel_cards", "intel", "01"),
            {
                "device": MAX_1550,
                "driver": "I915_23.10.32_PSB_231129.32",
                "interconnect": "xelink",
            },
        ),
        ("intel_no_tool", "intel", "0", {"device": "Intel GPU 0x0bd5"}),
        ("gaudi", "gaudi", "026", {"device": "HL-225", "driver": "1.17.1-fb2ce36"}),
        ("gaudi_no_tool", "gaudi", "01234567", {}),
        ("nvidia_single", "nvidia", "0", {"device": "NVIDIA T400 4GB"}),
        ("two_kinds", "amd", "01", {"device": "AMD gfx942 (0x74a1)", "interconnect": "xgmi"}),
        ("hidden", "nvidia", "45", {"device": "NVIDIA H100"}),
        ("all_hidden", "nvidia", "", {}),
        ("nonsense", None, "", {}),
        ("hanging", "nvidia", "01", {}),
        ("none", None, "", {}),
        (
            *("amd_parts", "amd", "01234567"),
            {"device": f"{MI300X} CPX/NPS4", "power_limit": "750 W", **AMD_LINKED},
        ),
        ("amd_warning", "amd", "01", {"device": MI300X, "driver": "6.10.5"}),
        ("ascend_plain", "ascend", "01", {"device": "Ascend 910B3"}),
        (
            *("mig", "nvidia", ["MIG-0-0-3g.20gb"]),
            {"device": f"{A100} MIG 3g.20gb", **NVIDIA_SETTINGS, "mig": "Enabled"},
        ),
        ("mig_old_name", "nvidia", ["MIG-0-1-4g.20gb"], {"device": f"{A100} MIG 4g.20gb"}),
        ("mig_empty_beside", "nvidia", ["GPU-1aaa"], {"device": A100, **NVIDIA_SETTINGS}),
        ("older_tool", "nvidia", "01", settings_without("mig")),
        ("newer_tool", "nvidia", "01", settings_without("application_clock")),
        (
            *("oldest_tool", "nvidia", "01"),
            settings_without("power_limit", "persistence", "compute_mode", "mig"),
        ),
        ("silent_tool", "nvidia", "01", settings_without("persistence")),
        ("nvidia_files", "nvidia", "01234567", {}),
        ("nvidia_all", "nvidia", "01", {"device": A100}),
        ("nvidia_hidden_by_minus_1", "nvidia", "", {}),
        ("of_two_such_uuids", "nvidia", "", {}),
        (
            *("amd_whole", "amd", "01"),
            {"device": MI300X, "power_limit": "500 W + 750 W", **AMD_LINKED},
        ),
        (
            *("amd_mixed_parts", "amd", "01234"),
            {
                "device": f"{GFX942} + {GFX942} DPX/NPS1",
                "power_limit": "500 W + 750 W",
                "interconnect": "xgmi",
            },
        ),
        (
            *("amd_hidden_parts", "amd", "1"),
            {"device": GFX942, "power_limit": "500 W", "interconnect": "xgmi"},
        ),
        (
            *("amd_uuid", "amd", "0"),
            {"device": GFX942, "power_limit": "500 W", "interconnect": "xgmi"},
        ),
        ("amd_chosen", "amd", "31", {"device": "AMD gfx942 (0x74a1)", "interconnect": "xgmi"}),
        ("ascend_chosen", "ascend", "1", {"device": "Ascend 910B3"}),
        ("tpu_chosen", "tpu", "01", {"device": "TPU v5e"}),
        ("tpu_new", None, "", {}),
        ("intel_gpus", "intel", "01", {"device": MAX_1550}),
        ("intel_tile", "intel", ["0.1"], {"device": MAX_1550}),
        ("gaudi_chosen", "gaudi", "06", {"device": "HL-225", "driver": "1.17.1-fb2ce36"}),
        ("neuron", "neuron", "01234567", {"device": "AWS Trainium2 core LNC=2"}),
        ("neuron_older", "neuron", "0123", {}),
        ("neuron_chosen", "neuron", "2347", {}),
        ("neuron_failed", None, "", {}),
        ("mig_chosen", "nvidia", ["MIG-0-1-4g.20gb"], {"device": f"{A100} MIG 4g.20gb"}),
        ("mig_container", "nvidia", ["MIG-0-0-1g.5gb"], {"device": f"{A100} MIG 1g.5gb"}),
        ("mig_beside", "nvidia", ["GPU-1aaa"], {"device": A100}),
        ("mig_by_number", "nvidia", ["MIG-0-0-1g.5gb"], {"device": f"{A100} MIG 1g.5gb"}),
        ("mig_beside_by_number", "nvidia", ["GPU-1aaa"], {"device": A100}),
        ("mig_of_number", "nvidia", ["MIG-0-0-3g.20gb"], {"device": f"{A100} MIG 3g.20gb"}),
        ("mixed", "nvidia", "01", {"device": f"{A100} + {T400}"}),
        ("mixed_hidden", "nvidia", "1", {"device": A100}),
        ("by_uuid", "nvidia", "1", {"device": A100}),
        ("of_no_such_uuid", "nvidia", "0", {"device": A100}),
        ("twice", "nvidia", "0", {"device": A100}),
        (
            *("silent_fields", "nvidia", "01"),
            {
                "device": A100,
                "driver": "550.54.15",
                "compute_mode": "Default",
                "persistence": "Enabled",
            },
        ),
        ("without_names", "nvidia", "0", {}),
        ("served", "nvidia", "01", {"device": A100}),
        ("no_driver", None, "", {}),
        (
            *("no_driver_beside_amd", "amd", "01"),
            {"device": GFX942, "interconnect": "xgmi"},
        ),
        (
            *("lost_beside_amd", "amd", "01"),
            {"device": "AMD gfx942 (0x74a1)", "interconnect": "xgmi"},
        ),
    ],
)
def test_a_host_shows_its_accelerators(
    reports: dict[str, HostReport],
    host: str,
    kind: str | None,
    ids: Sequence[str],
    facts: dict[str, str],
) -> None:
    report = reports[host]
    assert (report.accelerators.kind, report.accelerators.ids) == (kind, tuple(ids))
    assert report.devices == len(ids)
    of_any_host = {"processor", "processors", "network", "nccl", "kernel"}
    found = {name: fact for name, fact in report.facts.items() if name not in of_any_host}
    each = report.accelerators.facts
    for name in sorted({name for of_one in each for name in of_one}):
        found[name] = " + ".join(sorted({of_one[name] for of_one in each if name in of_one}))
    assert found == facts


def fingerprint(report: HostReport, devices: Sequence[int]) -> Fingerprint:
    return fingerprint_of(
        Topology(nodes=1, devices_per_node=len(devices)),
        [(Host(name="host", address="host"), report, devices)],
        NEEDED,
        on_one_machine=False,
    )


def test_a_run_is_told_the_devices_that_it_uses(reports: dict[str, HostReport]) -> None:
    """Not those beside them; and what caps a device is known of each."""
    mixed, capped = reports["mixed"], reports["capped"]
    assert fingerprint(mixed, [1]).machine["device"] == A100
    assert fingerprint(mixed, [0]).machine["device"] == T400
    assert mixed.accelerators.are_mixed
    assert reports["mixed_hidden"].accelerators.are_mixed, "the other one is counted as well"
    assert not capped.accelerators.are_mixed
    one, other = (fingerprint(capped, [place]).software for place in (0, 1))
    assert {name: one[name] for name in NVIDIA_SETTINGS} == {
        "driver": "550.54.15",
        "power_limit": "300 W",
        "application_clock": "1095 MHz",
        "compute_mode": "Exclusive_Process",
        "ecc": "Disabled",
        "persistence": "Disabled",
        "mig": "Disabled",
    }
    assert {name: other[name] for name in NVIDIA_SETTINGS} == NVIDIA_SETTINGS


def test_users_of_other_devices_are_let_work(reports: dict[str, HostReport]) -> None:
    """Nor does the server count through which processes share a device."""
    report = reports["used_elsewhere"]
    in_use = "its devices are in use by 4711, python (device 1)"
    assert [report.fault_of(places) for places in ([0], [1], None)] == [
        *(TOO_FEW, f"{TOO_FEW}; {in_use}", f"{TOO_FEW}; {in_use}")
    ]
    assert reports["served"].fault_of(None) == TOO_FEW
    served = reports["served_to_a_client"]
    assert "in use by 91, python (device 0)" in (served.fault_of([0]) or "")
    assert served.fault_of([1]) == TOO_FEW


@pytest.mark.parametrize(
    ("host", "used", "free", "user"),
    [
        ("amd", 0, 1, "812, python3 (device 0)"),
        # Place 0 of what is left is device 4 of the host.
        ("amd_uuid", 0, None, "812, python3 (device 0)"),
        ("amd_mixed_parts", 4, 0, "812, python3 (device 4)"),
        ("amd_hidden_parts", 0, None, "812, python3 (device 0)"),
        ("ascend", 0, 1, "124528, python3.8 (device 0)"),
        ("intel", 1, 2, "768707, python (device 1)"),
        ("intel_cards", 0, 1, "768707, python (device 0)"),
        ("intel_tile_used", 0, None, "768707, python (device 0)"),
    ],
)
def test_users_of_other_vendors_devices_are_known_by_device(
    reports: dict[str, HostReport], host: str, used: int, free: int | None, user: str
) -> None:
    report = reports[host]
    assert user in (report.fault_of([used]) or "")
    if free is not None:
        assert "in use" not in (report.fault_of([free]) or "")


def test_users_of_hidden_devices_are_let_work(reports: dict[str, HostReport]) -> None:
    assert reports["amd_hidden_user"].fault_of(None) == (
        "8 devices were declared, and it shows 2 (ROCR_VISIBLE_DEVICES=0,1 is set there)"
    )


def test_a_cap_is_told_as_what_differs(reports: dict[str, HostReport]) -> None:
    """One run on the device that is capped, the other beside it."""
    for host, shown in (
        ("capped", ("power_limit", "300 W", "400 W")),
        ("amd_whole", ("power_limit", "750 W", "500 W")),
    ):
        accepted, tonight = (
            MeasuredOn.of_night(fingerprint(reports[host], [place]), None) for place in (0, 1)
        )
        differing = differences_of(Sides(accepted=accepted, tonight=tonight))
        assert shown in [(one.name, one.accepted, one.tonight) for one in differing]


def test_users_of_a_neuron_chip_keep_others_from_its_cores(
    reports: dict[str, HostReport],
) -> None:
    report = reports["neuron"]
    free, used = report.fault_of([0, 3]), report.fault_of([3, 4])
    assert free is None
    assert "113985, python3" in (used or "")


def test_every_kind_was_recorded(reports: dict[str, HostReport]) -> None:
    assert {kind.name for kind in KINDS} | {None} == {
        report.accelerators.kind for report in reports.values()
    }
    assert {kind.name for kind in KINDS} == {each.kind for each in Devices} - {None}


def test_the_document_counts_the_recorded_hosts(reports: dict[str, HostReport]) -> None:
    found = Counter(
        report.accelerators.kind or ("left out" if report.fault else "none")
        for report in reports.values()
    )
    rows = table(CLUSTERS, "<!-- counts: recorded hosts -->")
    assert {row[0].strip("`"): int(row[1]) for row in rows} == found


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        ("amd", f"{TOO_FEW}; its devices are in use by 812, python3 (device 0)"),
        (
            "ascend",
            f"{TOO_FEW}; its devices are in use by 124528, python3.8 (device 0)",
        ),
        ("tpu", "8 devices were declared, and it shows 4; its devices are in use by 77, python3"),
        (
            "intel",
            f"{TOO_FEW[:-1]}4; its devices are in use by 768707, python (devices 0, 1)",
        ),
        ("gaudi", "8 devices were declared, and it shows 3"),
        ("gaudi_no_tool", None),
        (
            "hidden",
            "8 devices were declared, and it shows 2 (CUDA_VISIBLE_DEVICES=4,5 is set there)",
        ),
        (
            "all_hidden",
            "8 devices were declared, and it shows 0 (CUDA_VISIBLE_DEVICES= is set there)",
        ),
        (
            "amd_slurm",
            "8 devices were declared, and it shows 2 (ROCR_VISIBLE_DEVICES=2,3 is set there)",
        ),
        ("none", None),  # its kind may be unknown here
        ("no_driver", f"nvidia-smi: NVIDIA-SMI has failed; {NONE_FOUND}"),
        ("no_library", f"nvidia-smi: {NVML_ERROR}; {NONE_FOUND}"),
        ("hanging_no_files", f"nvidia-smi: no answer; {NONE_FOUND}"),
        ("no_driver_beside_amd", TOO_FEW),
        ("no_devices", "nvidia-smi: No devices were found"),
        ("no_devices_0", "nvidia-smi: No devices were found"),
        (
            "other_driver",
            f"nvidia-smi: {MISMATCH}; NVML library version: 550.54",
        ),
        ("lost", f"nvidia-smi: {LOST}"),
        ("lost_0", f"nvidia-smi: {LOST}"),
        (
            "mig_empty",
            f"nvidia-smi: No MIG devices found, and MIG mode is enabled; {MAKE_SOME}",
        ),
        ("needs_reset", "nvidia-smi shows GPU requires reset for GPU 1"),
        ("unknown_error", "nvidia-smi shows Unknown Error for GPU 1"),
        ("err_field", "nvidia-smi shows ERR! for GPU 1"),
        ("lost_field", "nvidia-smi shows GPU is Lost for GPU 1"),
        (
            "intel_selected",
            "ONEAPI_DEVICE_SELECTOR=level_zero:0,1 is set there; name devices in ZE_AFFINITY_MASK",
        ),
        ("nonsense", None),
    ],
)
def test_a_host_that_shows_fewer_or_is_busy_cannot_be_used(
    reports: dict[str, HostReport], host: str, fault: str | None
) -> None:
    assert reports[host].fault_of(None) == fault


@pytest.mark.usefixtures("reports")
def test_tools_that_hang_are_asked_a_few_times_at_most(folder: Path) -> None:
    [asked] = folder.glob("hanging/**/asked")
    questions = Counter(asked.read_text(encoding="utf-8").split())
    # Beside other load a tool may be ended before it has written that it was asked.
    assert questions
    assert max(questions.values()) <= 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("amd", "amd_old_tool"),
        ("amd_no_tool", "amd_sibling"),
        ("amd", "amd_no_tool"),
        ("tpu", "tpu_vfio"),
        ("tpu", "tpu_container"),
        ("amd", "intel"),
        ("amd", "amd_parts"),
        ("mig", "mig_chosen"),
        ("mig", "twice"),
    ],
)
def test_numbers_of_two_devices_are_never_compared(
    reports: dict[str, HostReport], one: str, other: str
) -> None:
    """Without the tool the name is another one too: nobody knows that it is the same device."""
    machines = [fingerprint(reports[name], [0]).machine for name in (one, other)]
    assert "device" in differences(*machines)


@pytest.mark.parametrize(
    ("kind", "ids", "wanted", "variables"),
    [
        ("nvidia", "0123", (0, 1), {"CUDA_VISIBLE_DEVICES": "0,1"}),
        ("nvidia", "45", (0, 1), {"CUDA_VISIBLE_DEVICES": "4,5"}),
        ("amd", "0123", (2, 3), {"HIP_VISIBLE_DEVICES": "2,3"}),
        ("ascend", "01", (1,), {"ASCEND_RT_VISIBLE_DEVICES": "1"}),
        ("intel", "0123", (0,), {"ZE_AFFINITY_MASK": "0"}),
        ("gaudi", "026", (1, 2), {"HABANA_VISIBLE_MODULES": "2,6"}),
        ("neuron", "4567", (0, 1), {"NEURON_RT_VISIBLE_CORES": "4,5"}),
        ("tpu", "0123", (0, 1, 2, 3), {}),
        (
            *("tpu", "0123", (3,)),
            {
                "TPU_VISIBLE_CHIPS": "3",
                "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
                "TPU_PROCESS_BOUNDS": "1,1,1",
            },
        ),
        (None, "", (0, 1), {"CUDA_VISIBLE_DEVICES": "0,1"}),
    ],
)
def test_a_run_is_confined_to_its_devices_by_the_variable_of_their_kind(
    kind: str | None, ids: str, wanted: tuple[int, ...], variables: dict[str, str]
) -> None:
    assert confined(kind, list(ids), wanted) == variables


def test_devices_of_several_models_are_counted_as_they_were_listed() -> None:
    assert confined("nvidia", ["0", "1"], [1], mixed=True) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_a_trainer_finds_the_variable_of_the_host_that_it_runs_on(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system file or the user sets goes before it."""
    host = RecordedHost(suite.path / "gaudi").tool(
        "hl-smi", {"-Q module_id,name,driver_version -f csv": HL_SMI}
    )
    monkeypatch.setenv("PATH", f"{host.tools}:{os.environ['PATH']}")
    TinySystem(suite, devices="gaudi", topologies=["1n2g"])
    select = ["-k", "throughput and tiny", "--dlperf-repeats", "1", "--dlperf-create-baselines"]

    def variables(run: str, *options: str) -> dict[str, str]:
        folder = suite.path / run
        result = suite.run(*select, "--dlperf-run-dir", str(folder), *options)
        assert result.ret == 0
        (record,) = folder.rglob("command.json")
        (node,) = json.loads(record.read_text(encoding="utf-8"))["nodes"]
        return {name: value for name, value in node["environment"].items() if "VISIBLE" in name}

    assert variables("own") == {"HABANA_VISIBLE_MODULES": "0,2"}
    chosen = variables("users", "--dlperf-set", "tiny-mlp.env.HABANA_VISIBLE_MODULES=6")
    assert chosen == {"HABANA_VISIBLE_MODULES": "6"}

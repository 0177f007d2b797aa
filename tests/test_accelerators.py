"""Accelerators of each vendor are counted, named and confined, whatever the tool does."""

import json
import os
import sys
from pathlib import Path

import pytest
from accelerator_hosts import (
    A100,
    LOST,
    MISMATCH,
    T400,
    VARIABLES,
    RecordedHost,
    gpu,
    recorded_hosts,
)
from clusters.processes import LONG_S
from msgspec.structs import replace
from trainers import TinySystem

from pytest_dlperf.config.launch_keys import Devices
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.preflight import Requirements, fingerprint_of, look_at_hosts
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.differences import compared, differences_of
from pytest_dlperf.model.measurement import differences
from pytest_dlperf.node import host_tools
from pytest_dlperf.node.accelerators import KINDS, confined
from pytest_dlperf.node.nvidia import SLICED

NEEDED = Requirements(python=sys.executable)
HANGING_S = 0.6
"""How long the tools may take that hang."""


class RecordedHosts(Launcher):
    """A launcher to recorded hosts, whose tools and files are all that there is."""

    name = "recorded"
    remote = False

    def __init__(self, hosts):
        super().__init__(sys.executable)
        self._hosts = hosts

    def command(self, host, program, *, alongside=False):
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
def hosts(tmp_path_factory):
    """All hosts that were recorded, whose root folder is what is sent there."""
    folder = tmp_path_factory.mktemp("hosts")
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
        yield recorded_hosts(folder)


@pytest.fixture(scope="module")
def reports(hosts):
    declared = [Host(name=name, address=name, devices=8) for name in hosts]
    return look_at_hosts(RecordedHosts(hosts), declared, NEEDED, lock=os.urandom(8).hex())


SETTINGS = {
    "power_limit": "400 W",
    "application_clock": "1410 MHz",
    "compute_mode": "Default",
    "ecc": "Enabled",
    "persistence": "Enabled",
}
VERSIONS = {"driver": "550.54.15", "cuda": "12.4"}
WHOLE_A100 = {"device": A100, **SETTINGS, **VERSIONS}
GFX942 = "AMD gfx942 (0x74a1)"
NONE_FOUND = "8 devices were declared, and none is found"
TOO_FEW = "8 devices were declared, and it shows 2"


def without(*names, **others):
    """The facts of a whole device but for some."""
    return {n: fact for n, fact in WHOLE_A100.items() if n not in names} | others


@pytest.mark.parametrize(
    ("host", "kind", "ids", "facts"),
    [
        ("nvidia", "nvidia", "01", WHOLE_A100),
        ("nvidia_files", "nvidia", "01234567", {}),
        ("hidden", "nvidia", "1", WHOLE_A100),
        ("all_hidden", "nvidia", "", VERSIONS),
        ("by_uuid", "nvidia", "1", WHOLE_A100),
        ("mixed", "nvidia", "01", without(device=f"{A100} + {T400}")),
        ("mig_chosen", "nvidia", ["MIG-1"], VERSIONS),
        # A number means another device to CUDA where some are in MIG mode.
        ("mig_beside", "nvidia", ["GPU-1aaa"], WHOLE_A100),
        ("nonsense", None, "", {}),
        ("hanging", "nvidia", "01", {}),
        ("none", None, "", {}),
        ("amd", "amd", "01", {"device": GFX942, "driver": "6.10.5", "rocm": "6.3.1"}),
        ("amd_sibling", "amd", "01", {"device": "AMD gfx942 (0x74a5)"}),
        ("amd_slurm", "amd", "01", {"device": GFX942}),
        (
            *("amd_parts", "amd", "01234"),
            {"device": GFX942, "power_limit": "500 W + 750 W"},
        ),
        ("ascend", "ascend", "01234567", {}),
        ("tpu", "tpu", "0123", {"device": "tpu 0x0063"}),
        ("tpu_container", "tpu", "0", {"device": "tpu 0x006f"}),
        ("intel", "intel", "01", {"device": "intel 0x0bd5"}),
        ("gaudi", "gaudi", "01234567", {"device": "gaudi 0x1020"}),
        ("neuron", "neuron", "01234567", {}),
        ("neuron_chosen", "neuron", "237", {}),
    ],
)
def test_a_host_shows_its_accelerators(
    reports,
    host,
    kind,
    ids,
    facts,
):
    report = reports[host]
    assert (report.accelerators.kind, report.accelerators.ids) == (kind, tuple(ids))
    of_any_host = {"processor", "processors", "network", "kernel"}
    found = {name: fact for name, fact in report.facts.items() if name not in of_any_host}
    each = report.accelerators.facts
    for name in sorted({name for of_one in each for name in of_one}):
        found[name] = " + ".join(sorted({of_one[name] for of_one in each if name in of_one}))
    assert found == facts


def fingerprint(report, devices, needed=NEEDED, *, first=0):
    return fingerprint_of(
        Topology(nodes=1, devices_per_node=devices),
        [(Host(name="host", address="host"), report, range(first, first + devices))],
        needed,
        on_one_machine=False,
    )


def test_a_run_is_told_the_devices_that_it_uses(reports):
    """Not those beside them; and what caps a device is known of each."""
    mixed, capped = reports["mixed"], reports["capped"]
    assert fingerprint(mixed, 1).machine["device"] == T400
    assert fingerprint(mixed, 1, first=1).machine["device"] == A100
    assert fingerprint(mixed, 2).machine["device"] == f"{A100} + {T400}"
    assert (mixed.accelerators.are_mixed, capped.accelerators.are_mixed) == (True, False)
    accepted, tonight = (
        compared(fingerprint(report, 1), None) for report in (capped, reports["nvidia"])
    )
    differing = differences_of(tonight, accepted=accepted)
    assert sorted((one.name, one.accepted, one.now) for one in differing) == [
        ("compute_mode", "Exclusive_Process", "Default"),
        ("power_limit", "300 W", "400 W"),
    ]


def test_a_device_without_a_name_is_what_the_cluster_calls_it(
    reports,
):
    declared = replace(NEEDED, device=f"{A100} MIG 3g.20gb")
    for host, device in (
        ("mig_chosen", declared.device),
        ("neuron", declared.device),
        ("amd", GFX942),
    ):
        assert fingerprint(reports[host], 1, declared).machine["device"] == device
    assert "device" not in fingerprint(reports["neuron"], 1).machine


def test_slices_count_where_they_are_named_and_the_cluster_names_the_device(
    hosts,
):
    declared = replace(NEEDED, device=f"{A100} MIG 3g.20gb")
    for name, needed, fault in (
        ("mig_chosen", NEEDED, SLICED),
        ("mig_chosen", declared, None),
        ("mig", declared, SLICED),
    ):
        found = look_at_hosts(
            RecordedHosts(hosts),
            [Host(name=name, address=name, devices=1)],
            needed,
            lock=os.urandom(8).hex(),
        )
        assert found[name].fault == fault


@pytest.mark.parametrize(
    ("host", "devices", "user"),
    [
        ("used_elsewhere", 2, "4711, python (device 1)"),
        ("served_to_a_client", 1, "91, python (device 0)"),
        ("amd", 1, "812, python3 (device 0)"),
        ("amd_parts", 5, "812, python3 (device 4)"),
    ],
)
def test_a_device_that_is_in_use_is_left_alone(reports, host, devices, user):
    for needed in (devices, None):
        assert f"its devices are in use by {user}" in (reports[host].fault_of(needed) or "")
    assert "in use" not in (reports[host].fault_of(devices - 1) or "")


def test_every_kind_was_recorded(reports):
    assert {kind.name for kind in KINDS} | {None} == {
        report.accelerators.kind for report in reports.values()
    }
    assert {kind.name for kind in KINDS} == {each.kind for each in Devices} - {None}


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        (
            "hidden",
            "8 devices were declared, and it shows 1 (CUDA_VISIBLE_DEVICES=1 is set there)",
        ),
        (
            "all_hidden",
            "8 devices were declared, and it shows 0 (CUDA_VISIBLE_DEVICES= is set there)",
        ),
        (
            "amd_slurm",
            "8 devices were declared, and it shows 2 (ROCR_VISIBLE_DEVICES=2,3 is set there)",
        ),
        ("served", TOO_FEW),
        ("gaudi", None),
        ("none", None),  # its kind may be unknown here
        ("nonsense", None),
        ("no_driver", f"nvidia-smi: NVIDIA-SMI has failed; {NONE_FOUND}"),
        ("hanging_no_files", f"nvidia-smi: no answer; {NONE_FOUND}"),
        ("no_devices", "nvidia-smi: No devices were found"),
        ("other_driver", f"nvidia-smi: {MISMATCH}; NVML library version: 550.54"),
        ("lost", f"nvidia-smi: {LOST}"),
        ("mig", SLICED),
        ("err_field", "nvidia-smi shows ERR! for GPU 1"),
    ],
)
def test_a_host_that_shows_fewer_or_is_broken_cannot_be_used(reports, host, fault):
    assert reports[host].fault_of(8) == fault


def test_numbers_of_two_devices_are_never_compared(reports):
    for one, other in (("amd", "amd_sibling"), ("tpu", "tpu_container"), ("amd", "nvidia")):
        machines = [fingerprint(reports[name], 1).machine for name in (one, other)]
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
    kind, ids, wanted, variables
):
    assert confined(kind, list(ids), wanted) == variables


def test_devices_of_several_models_are_counted_as_they_were_listed():
    assert confined("nvidia", ["0", "1"], [1], mixed=True) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_a_trainer_finds_the_variable_of_the_host_that_it_runs_on(suite, monkeypatch):
    """What the system file or the user sets goes before it."""
    host = RecordedHost(suite.path / "nvidia").nvidia(gpu(0), gpu(1, mig="Enabled"), gpu(2))
    monkeypatch.setenv("PATH", f"{host.tools}:{os.environ['PATH']}")
    TinySystem(suite, devices="gpu", topologies=["1n2g"])
    select = ["-k", "throughput and tiny", "--dlperf-repeats", "1", "--dlperf-create-baselines"]

    def variables(run, *options):
        folder = suite.path / run
        result = suite.run(*select, "--dlperf-run-dir", str(folder), *options)
        assert result.ret == 0
        (record,) = folder.rglob("command.json")
        (node,) = json.loads(record.read_text(encoding="utf-8"))["nodes"]
        return {name: value for name, value in node["environment"].items() if "VISIBLE" in name}

    assert variables("own") == {"CUDA_VISIBLE_DEVICES": "GPU-0aaa,GPU-2aaa"}
    chosen = variables("users", "--dlperf-set", "tiny-mlp.env.CUDA_VISIBLE_DEVICES=6")
    assert chosen == {"CUDA_VISIBLE_DEVICES": "6"}

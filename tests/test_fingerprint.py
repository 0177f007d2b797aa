"""What a case was measured on is found out on its hosts and kept with the measurement."""

import os
import sys
from pathlib import Path

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace
from pythons import old_python
from trainers import CASES, TinySystem, checkout, measurer

from pytest_dlperf.launch.fleet import Fleet
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.launch.preflight import Requirements, look_at_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Fingerprint, Measurement
from pytest_dlperf.node import host_tools, probe

V100 = "Tesla V100-SXM2-16GB"


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return path


def nvidia(folder, *, devices=(V100, V100, V100), driver="470.57.02"):
    """A folder with a stand-in for NVIDIA's tool that shows these devices."""
    folder.mkdir()
    shown = "".join(f"<gpu><product_name>{name}</product_name></gpu>" for name in devices)
    (folder / "shown").write_text(
        f"<nvidia_smi_log><driver_version>{driver}</driver_version>"
        f"<cuda_version>11.4</cuda_version>{shown}</nvidia_smi_log>\n",
        encoding="utf-8",
    )
    program(folder / "nvidia-smi", f"exec cat {folder}/shown\n")
    return folder


def distribution(folder, name, version):
    """Metadata of a distribution, as pip leaves it in a Python's folder."""
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        encoding="utf-8",
    )


def above(found):
    """The software but for what this machine has below all of it."""
    below = {"kernel", "bios", "vbios", "nic_firmware"}
    return {name: version for name, version in found.software.items() if name not in below}


class OwnTools(Launcher):
    """A launcher to hosts that are this machine, each with tools of its own on its PATH."""

    name = "own tools"
    remote = False

    def __init__(self, tools, *, python=sys.executable):
        super().__init__(python)
        self.tools = tools

    def command(self, host, program, *, alongside=False):
        del alongside
        return ["env", f"PATH={self.tools[host.name]}:{os.environ['PATH']}", *program]


def taken_on(tools, topology, *, python=sys.executable, **wanted):
    """The fingerprint of a case on the first hosts of these, as a session finds it."""
    folder = next(iter(tools.values()))
    fleet = Fleet(
        OwnTools(tools),
        [Host(name=name, address=name) for name in tools],
        pool=HostPool(folder / "pool"),
        exclusive=True,
        lock=os.urandom(8).hex(),
        wait_limit_s=60.0,
        shared_folder=None,
        say=print,
    )
    case = Case.from_id(f"tiny-mlp-fp32-b4-{topology}")
    needed = Requirements(python=python, **wanted)
    with fleet.leased(case, needed, limit_s=60) as leases:
        return fleet.fingerprint(case, needed, leases)


def test_machine_and_software_are_those_of_the_hosts(tmp_path):
    tools = nvidia(tmp_path / "one")
    # The tests' own Python may have frameworks.
    python = bare_python(tmp_path / "python")
    found = taken_on({"one": tools}, "1n2g", python=python)
    assert replace(found, software=above(found)) == Fingerprint(
        machine={"device": V100, "devices_per_node": "3"},
        software={"driver": "470.57.02", "cuda": "11.4"},
        hosts=("one",),
    )


def test_hosts_that_differ_are_all_told(tmp_path):
    tools = {
        "two": nvidia(tmp_path / "two", devices=[V100] * 2, driver="440.33.01"),
        "one": nvidia(tmp_path / "one", devices=["Tesla P100"] * 3),
    }
    found = taken_on(tools, "2n2g")
    assert found.hosts == ("two", "one")
    assert found.machine == {
        "device": f"Tesla P100 + {V100}",
        "devices_per_node": "2 + 3",
        "network": "ethernet",
    }
    assert found.software["driver"] == "440.33.01 + 470.57.02"


def patched(monkeypatch, folder, module, old, new):
    """Send another program to the hosts, in which one thing differs."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert old in source
    other = folder / "sent.py"
    other.write_text(source.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(module, "__file__", str(other))


def test_a_network_is_infiniband_where_a_port_of_it_is_active(tmp_path, monkeypatch):
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n", encoding="utf-8")
    (port / "link_layer").write_text("InfiniBand\n", encoding="utf-8")
    patched(monkeypatch, tmp_path, probe, "/sys/class/infiniband", str(tmp_path / "infiniband"))
    tools = {name: nvidia(tmp_path / name) for name in ("one", "two")}
    assert taken_on(tools, "2n1g").machine["network"] == "infiniband"


def test_a_trainer_without_accelerators_is_measured_on_processors(tmp_path):
    tools = nvidia(tmp_path / "one")
    python = bare_python(tmp_path / "python")
    found = taken_on({"one": tools}, "1n2g", python=python, accelerators=False)
    assert set(found.machine) == {"device", "devices_per_node"}
    assert found.machine["device"] != V100
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processors = [line for line in lines if line.split(":")[0].strip() == "processor"]
    assert found.machine["devices_per_node"] == str(len(processors))
    assert above(found) == {}


def test_firmware_is_what_the_kernels_files_say(tmp_path, monkeypatch):
    root = tmp_path / "root"
    for name, text in {
        "sys/class/dmi/id/bios_version": "2.19.1\n",
        "sys/class/infiniband/mlx5_0/fw_ver": "28.39.2048\n",
        "sys/class/infiniband/mlx5_1/fw_ver": "28.41.1000\n",
        "proc/driver/nvidia/gpus/0000:1b:00.0/information": "IRQ: 91\nVideo BIOS: \t 96.00.89\n",
        "proc/driver/nvidia/gpus/0000:1c:00.0/information": "Video BIOS: \t ??.??.??\n",
    }.items():
        file = root / name
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    patched(monkeypatch, tmp_path, host_tools, 'ROOT = ""', f"ROOT = {str(root)!r}")
    tools = {"one": nvidia(tmp_path / "one")}

    software = taken_on(tools, "1n1g").software

    assert software["bios"] == "2.19.1"
    assert software["nic_firmware"] == "28.39.2048 + 28.41.1000"
    assert software["vbios"] == "96.00.89"
    assert software["kernel"] == os.uname().release
    assert "vbios" not in taken_on(tools, "1n1g", accelerators=False).software


def test_commits_are_those_of_the_checkouts_on_the_first_host(tmp_path):
    clean, changed, none = (tmp_path / name for name in ("clean", "changed", "none"))
    commits = [checkout(clean), checkout(changed)]
    (clean / "new.log").touch()
    (changed / "train.py").write_text("fail\n", encoding="utf-8")
    none.mkdir()
    folders = {"code": clean, "data": none, "other": changed, "gone": tmp_path / "gone"}

    found = taken_on(
        {"one": nvidia(tmp_path / "one")},
        "1n1g",
        checkouts={name: str(folder) for name, folder in folders.items()},
    )

    assert found.commits == {"code": commits[0], "other": f"{commits[1]}+train.py"}


# ---------------------------------------------------------------------------- the trainer's Python


def bare_python(path, *folders):
    """A Python that has nothing but what lies in these folders."""
    added = "".join(f"sys.path.insert(0, {str(folder)!r}); " for folder in folders)
    # The program comes as the second argument, behind -c.
    run = f'exec {sys.executable} -I -S -c "import sys; {added}\n$code" "$@"'
    program(path, f"shift\ncode=$1\nshift\n{run}\n")
    return str(path)


def test_versions_of_frameworks_are_read_and_none_is_imported(tmp_path):
    folder = tmp_path / "packages"
    distribution(folder, "torch", "1.8.1+cu111")
    distribution(folder, "paddlepaddle_gpu", "2.1.2.post110")
    distribution(folder, "nvidia_nccl_cu12", "2.19.3")
    distribution(folder, "some_other", "1.0")
    (folder / "torch.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    tools = nvidia(tmp_path / "one")
    python = bare_python(tmp_path / "python", folder)
    found = taken_on({"one": tools}, "1n1g", python=python)
    assert above(found) == {
        "driver": "470.57.02",
        "cuda": "11.4",
        "nccl": "2.19.3",
        "torch": "1.8.1+cu111",
        "paddlepaddle-gpu": "2.1.2.post110",
    }
    assert not (tmp_path / "imported").exists()


def test_an_old_python_on_the_host_tells_the_same(tmp_path):
    tools = nvidia(tmp_path / "one")
    python = old_python("3.6") or old_python("3.8")
    if python is None:
        pytest.skip("there is no Python 3.6 or 3.8 here")
    launcher = OwnTools({"one": tools}, python=str(python))
    hosts = [Host(name="one", address="one")]
    needed = Requirements(python=sys.executable)
    report = look_at_hosts(launcher, hosts, needed, lock="")["one"]
    usual = look_at_hosts(OwnTools({"one": tools}), hosts, needed, lock="")["one"]
    assert report == usual
    assert report.facts["driver"] == "470.57.02"


def test_modules_that_a_system_needs_are_told_where_they_have_a_version(tmp_path):
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "frame.py").write_text("__version__ = '1.2'\n", encoding="utf-8")
    (folder / "plain.py").write_text("", encoding="utf-8")
    python = bare_python(tmp_path / "python", folder)
    found = taken_on(
        {"one": nvidia(tmp_path / "one")},
        "1n1g",
        python=python,
        accelerators=False,
        modules=("frame", "plain"),
    )
    assert above(found) == {"frame": "1.2"}


# ---------------------------------------------------------------------------- with a measurement


def test_a_measurement_says_what_it_was_taken_on(suite):
    TinySystem(suite)
    one_node = measurer(suite).measure(Case.from_id(CASES[0]))
    two_nodes = measurer(suite).measure(Case.from_id(CASES[2]))
    assert one_node.fingerprint.hosts == two_nodes.fingerprint.hosts == ("localhost",)
    assert "network" not in one_node.fingerprint.machine
    # Both nodes are this machine: that is no figure of a network.
    assert two_nodes.fingerprint.machine["network"] == "loopback"
    assert convert(to_builtins(one_node), Measurement) == one_node

"""Hosts are looked at before anything runs on them: what is wrong is said once, by host."""

import json
import os
import re
import subprocess
import sys

import pytest
from trainers import SYSTEM, TinySystem

from pytest_dlperf.launch import preflight
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher, LocalLauncher
from pytest_dlperf.launch.preflight import Requirements, look_at_hosts

ONCE = ("--dlperf-repeats", "1", "--dlperf-create-baselines")

# A Python that finds an older framework on one host than on the others.
OLD_THERE = """\
#!/bin/sh
version=new
case "$SSH_CONNECTION" in *" {host} "*) version=old ;; esac
PYTHONPATH={folder}/$version exec {python} "$@"
"""


def program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def framework(folder, version):
    """A folder with a module of that version."""
    folder.mkdir()
    (folder / "frame.py").write_text(f"__version__ = '{version}'\n", encoding="utf-8")
    return folder


def cluster(suite, **settings):
    folder = suite.path / "baselines" / "local"
    folder.mkdir()
    (folder / "cluster.yaml").write_text(
        json.dumps({"estimator": "steady", **settings}), encoding="utf-8"
    )


def counted(result):
    """How many tests passed and failed."""
    outcomes = result.parseoutcomes()
    return {kind: outcomes[kind] for kind in ("passed", "failed") if kind in outcomes}


def host_notes(result):
    """What is said of hosts at the end of a session; a host that is named twice is a mistake."""
    notes = [re.match(r"host (\S+) cannot be used: (.*)", line) for line in result.outlines]
    found = [(note[1], note[2]) for note in notes if note]
    assert len(dict(found)) == len(found)
    return dict(found)


def test_each_fault_is_said_once_and_cases_go_where_there_is_none(suite, over_ssh, workers):
    """One host is down, on one the framework is older; the two others are fit."""
    down, old, *fit = over_ssh.names
    over_ssh.stop(down)
    framework(suite.path / "old", "1.1")
    framework(suite.path / "new", "1.2")
    text = OLD_THERE.format(host=old, folder=suite.path, python=sys.executable)
    python = program(suite.path / "python", text)
    tiny = TinySystem(
        suite, topologies=["1n1g", "2n1g", "3n1g"], launch=["requires_modules: [frame]"]
    )

    result = suite.run(
        "-k", "throughput and tiny", *ONCE, "--dlperf-set", f"{SYSTEM}.python={python}", *workers
    )

    assert result.ret == 1
    assert counted(result) == {"passed": 2, "failed": 1}
    assert {line.split()[3] for line in tiny.hosts()} == set(fit)
    notes = host_notes(result)
    assert set(notes) == {down, old}
    assert "Connection refused" in notes[down]
    assert notes[old] == f"has frame 1.1, and {', '.join(fit)} 1.2"
    result.stdout.fnmatch_lines(
        [
            "failed: needs 3 fit hosts, and there are 2. Not fit:",
            f"  {down}: ssh exited with status 255: *Connection refused",
            f"  {old}: has frame 1.1, and *",
        ]
    )
    result.stdout.no_fnmatch_line("*the test itself failed*")


def test_a_python_that_is_not_there_is_a_fault(suite, over_ssh):
    """Both that of the trainer and that which supervises a run."""
    tiny = TinySystem(suite, topologies=["1n1g"])
    select = ["-k", "throughput and tiny", *ONCE]
    trainer = suite.run(*select, "--dlperf-set", f"{SYSTEM}.python=/no/python")
    cluster(suite, python="/no/python3")
    supervisor = suite.run(*select)

    for result, told in (
        (trainer, "the trainer's Python '/no/python' does not run there: No such file*.python=*"),
        (supervisor, "ssh exited with status 127*/no/python3*"),
    ):
        assert result.ret == 1
        hosts = ", ".join(over_ssh.names)
        result.stdout.fnmatch_lines(
            [
                "*needs 1 fit host, and there are 0. Not fit:",
                f"  {hosts}: {told}",
            ]
        )
        assert set(host_notes(result)) == set(over_ssh.names)
    assert tiny.starts() == []


def test_what_a_trainer_s_python_says_is_told_without_secrets(tmp_path):
    python = program(tmp_path / "python", "#!/bin/sh\necho no ftp://me:hush@hub >&2\nexit 1\n")
    [report] = look_at_hosts(
        LocalLauncher(),
        [Host(name="localhost", address="127.0.0.1")],
        Requirements(python=str(python), accelerators=False),
        lock="",
    ).values()
    assert "no ftp://me:***@hub" in str(report.fault)


class Slow(Launcher):
    """A launcher to hosts of which some answer late or never."""

    name = "slow"
    remote = False

    def __init__(self, seconds):
        super().__init__(sys.executable)
        self._seconds = seconds

    def command(self, host, program, *, alongside=False):
        del alongside
        return ["sh", "-c", f'sleep {self._seconds[host.name]}; exec "$@"', "sh", *program]


@pytest.mark.slow
def test_all_hosts_have_the_same_time_to_answer(monkeypatch):
    """To wait for one of them gives no other more time."""
    monkeypatch.setattr(preflight, "LIMIT_S", 12.0)
    seconds = {"never": 600.0, "never too": 600.0, "late": 18.0, "in time": 0.0}
    hosts = [Host(name=name, address=name, devices=None) for name in seconds]
    needed = Requirements(python=sys.executable, accelerators=False)

    reports = look_at_hosts(Slow(seconds), hosts, needed, lock="")

    told = "no answer for 12 s"
    faults = {name: report.fault for name, report in reports.items()}
    assert faults == {"never": told, "never too": told, "late": told, "in time": None}


def accelerators(folder, count, **used_by):
    """A stand-in for NVIDIA's tool that shows so many devices; ``gpu1`` is who uses the second."""
    shown = "".join(
        f"<gpu><product_name>Tesla</product_name><uuid>GPU-{number}</uuid><processes>"
        f"{used_by.get(f'gpu{number}', '')}</processes></gpu>"
        for number in range(count)
    )
    program(
        folder / "nvidia-smi",
        f"#!/bin/sh\necho '<nvidia_smi_log>{shown}</nvidia_smi_log>'\n",
    )


def process(number, name):
    return (
        f"<process_info><pid>{number}</pid><type>C</type><process_name>{name}</process_name>"
        "</process_info>"
    )


def test_devices_are_counted_and_have_to_be_free(suite, monkeypatch):
    tiny = TinySystem(suite, devices="gpu", topologies=["1n2g"])
    monkeypatch.setenv("PATH", f"{suite.path}:{os.environ['PATH']}")
    others = {"gpu0": process(1, "nvidia-cuda-mps-server"), "gpu2": process(4712, "python")}
    accelerators(suite.path, 3, **others)
    select = ["-k", "throughput and tiny", "--dlperf-launcher", "local", *ONCE]
    hosts = ["--dlperf-hosts", "127.1.0.1:4,127.1.0.2:2"]

    fewer = suite.run(*select, *hosts)
    accelerators(suite.path, 3, gpu1=process(4711, "python"), **others)
    busy = suite.run(*select, *hosts)

    assert fewer.ret == 0
    assert [line.split()[3] for line in tiny.hosts()] == ["127.1.0.2"]
    assert host_notes(fewer) == {"127.1.0.1": "4 devices were declared, and it shows 3"}
    assert busy.ret == 1
    assert host_notes(busy)["127.1.0.2"] == "its devices are in use by 4711, python (device 1)"


def test_a_commit_is_no_suspect_where_hosts_alone_are_to_blame(suite, monkeypatch):
    """Their devices are in use; what a host lacks may be asked for since that commit."""
    TinySystem(suite, devices="gpu", topologies=["1n2g"])
    monkeypatch.setenv("PATH", f"{suite.path}:{os.environ['PATH']}")
    accelerators(suite.path, 2)
    (suite.path / ".gitignore").write_text("*\n!bench_tests/**\n", encoding="utf-8")
    git = ["git", "-C", str(suite.path), "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)

    def explained(*arguments):
        """Judge at a new commit, and return what explains the throughput."""
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "More"], check=True)
        hosts = ["--dlperf-launcher", "local", "--dlperf-hosts", "127.1.0.1:2"]
        _, results = suite.judge(
            *("-k", "throughput and tiny", *ONCE, *hosts, *arguments), cluster="local"
        )
        return results["cases"][0]["explanations"].get("throughput", {})

    explained()
    lacking = explained("--dlperf-set", f"{SYSTEM}.python=/no/python")
    accelerators(suite.path, 2, gpu1=process(4711, "python"))
    busy = explained()

    assert [one["name"] for one in lacking["differences"]] == ["suite"]
    assert [one["checkout"] for one in lacking["commits"]] == [suite.path.name]
    assert busy["last_good"] == lacking["last_good"]
    assert (busy["differences"], busy["commits"]) == ([], [])


@pytest.mark.parametrize("engine", [{}, {"partition": ("no-such",)}], ids=["bare", "options"])
def test_a_host_without_an_answer_is_silent_unless_something_was_asked_of_it(
    engine,
):
    [report] = look_at_hosts(
        Slow({"gone": "0; exit 255"}),
        [Host(name="gone", address="gone")],
        Requirements(python=sys.executable, accelerators=False, engine=engine),
        lock="",
    ).values()
    assert report.fault is not None
    assert report.is_silent is (not engine)

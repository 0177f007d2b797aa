"""Each launcher's command, addresses and locks; and which one a session takes."""

import inspect
import runpy
import shlex
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_dlperf.config.options import Settings
from pytest_dlperf.config.values import OptionText
from pytest_dlperf.launch import launchers
from pytest_dlperf.launch.choosing import engine_and_hosts
from pytest_dlperf.launch.hosts import Host, parse_hosts
from pytest_dlperf.launch.launchers import (
    ADDRESS,
    Launcher,
    LocalLauncher,
    SlurmLauncher,
    SshLauncher,
    built_in_launchers,
    last_words,
    lock_scope,
)
from pytest_dlperf.model.errors import BrokenError, UsageError

PROGRAM = ["python3", "-c", "print('a b')", "$HOME"]


def hosts(text):
    return parse_hosts(text, place="a test")


def tool(folder, name, body):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def test_names_of_this_machine_get_its_loopback_address_unless_another_was_declared():
    given = [
        *hosts(f"localhost,{socket.gethostname()},elsewhere"),
        Host(name="localhost", address="10.0.0.1"),
    ]
    resolved = LocalLauncher().resolve(given)
    assert [host.address for host in resolved] == [ADDRESS, ADDRESS, "elsewhere", "10.0.0.1"]


def test_ssh_hands_the_program_to_the_login_shell_as_one_quoted_word():
    command = SshLauncher(["ssh", "-F", "mine"]).command(hosts("me@a")[0], PROGRAM)
    assert command[:3] == ["ssh", "-F", "mine"]
    assert command[-3:-1] == ["--", "me@a"]
    assert shlex.split(command[-1]) == PROGRAM


def test_ssh_takes_addresses_from_the_configuration_unless_they_were_declared(
    tmp_path,
):
    client = tool(tmp_path, "ssh", 'echo user me; echo "hostname $3.example.org"')
    given = [*hosts("a,me@b,10.0.0.1"), Host(name="c", address="c-fast")]
    addresses = [host.address for host in SshLauncher([client]).resolve(given)]
    assert addresses == ["a.example.org", "me@b.example.org", "10.0.0.1", "c-fast"]


def test_slurm_runs_one_step_on_the_node_alongside_others_only_where_it_does_little():
    slurm, [node] = SlurmLauncher(), hosts("n1")
    command = slurm.command(node, PROGRAM)
    assert command[0] == "srun"
    assert "--nodelist=n1" in command
    assert command[-len(PROGRAM) - 1 :] == ["--", *PROGRAM]
    assert "--overlap" not in command
    assert "--overlap" in slurm.command(node, PROGRAM, alongside=True)
    # Of an option that is given twice, the last one holds.
    own = slurm.taking({"slurm.srun": ("-N2", "--mpi=pmix")}).command(node, PROGRAM)
    assert own.index("-N2") < own.index("--mpi=pmix") < own.index("--nodes=1")


def test_slurm_takes_addresses_from_its_nodes(tmp_path, monkeypatch):
    tool(tmp_path, "scontrol", "echo NodeName=n1 Arch=x NodeAddr=10.0.0.7 CPUs=1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    addresses = [host.address for host in SlurmLauncher().resolve(hosts("n1,n2"))]
    assert addresses == ["10.0.0.7", "n2"]


def test_the_example_for_ray_is_a_launcher():
    """What it runs needs Ray; it was tried by hand."""
    file = Path(__file__).parent.parent / "examples" / "ray_launcher.py"
    [launcher] = runpy.run_path(str(file))["pytest_dlperf_launchers"]("python3")
    assert isinstance(launcher, Launcher)
    assert inspect.signature(launcher.command) == inspect.signature(SshLauncher().command)
    whole = launcher.command(hosts("a")[0], PROGRAM)
    assert whole == [sys.executable, str(file), "a", "whole", *PROGRAM]
    assert launcher.command(hosts("a")[0], PROGRAM, alongside=True)[3] == "shared"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, "cannot start"),
        ("echo no such host >&2; exit 255", "no such host"),
        ("sleep 600", "no answer for 0.2 s"),
    ],
    ids=["is not there", "fails", "hangs"],
)
def test_a_client_that_does_not_answer_is_told_with_the_option_that_names_it(
    tmp_path, monkeypatch, body, told
):
    monkeypatch.setattr(launchers, "CALL_LIMIT_S", 0.2 if body == "sleep 600" else 20.0)
    client = "no-such-ssh" if body is None else tool(tmp_path, "ssh", body)
    with pytest.raises(BrokenError, match=rf"{told}.*--dlperf-ssh"):
        SshLauncher([client]).resolve(hosts("a"))


def test_locks_have_one_name_for_a_machine_whoever_gets_there():
    """As far as it plays one host only: on loopback, and locally, it plays several."""
    ssh, local = SshLauncher(), LocalLauncher()
    for text in ("localhost", socket.gethostname(), ADDRESS):
        [alone] = local.resolve(hosts(text))
        assert lock_scope("x", alone, local) == "x/"
    for text in ("gpu01", "10.0.0.1", ADDRESS):
        assert lock_scope("x", hosts(text)[0], ssh) == "x/"
    assert lock_scope("x", hosts("gpu01")[0], local) == "x/gpu01"
    assert lock_scope("x", hosts("127.0.0.2")[0], ssh) == "x/127.0.0.2"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["srun: unrecognized option '--bogus'", 'Try "srun --help" for more information'],
            "srun: unrecognized option '--bogus'",
        ),
        (
            ["docker: Error response from daemon: no such image.", "See 'docker run --help'.", ""],
            "docker: Error response from daemon: no such image.",
        ),
        (["Try again later"], "Try again later"),
        (
            ["sbatch: error: no answer of ftp://me:hush@store/"],
            "sbatch: error: no answer of ftp://me:***@store/",
        ),
        ([], ""),
    ],
)
def test_what_a_command_has_against_an_option_is_told_and_not_its_help(words, told):
    assert last_words(words) == told


# ---------------------------------------------------------------------- which one a session takes


ALLOCATION = {"SLURM_JOB_NODELIST": "n[1-2]"}


class Pods(Launcher):
    """What a plugin adds."""

    name = "pods"

    def command(self, host, program, *, alongside=False):
        del host, alongside
        return list(program)


def choose(
    launcher=None,
    hosts=None,
    *,
    in_allocation=False,
    more=(),
):
    settings = SimpleNamespace(
        launcher=launcher,
        places={"launcher": "--dlperf-launcher"},
        hosts=None if hosts is None else OptionText(hosts, "--dlperf-hosts", Path()),
        in_allocation=in_allocation,
    )
    launchers = [*built_in_launchers(["ssh"], "python3"), *more]
    chosen, found = engine_and_hosts(cast("Settings", settings), launchers, ALLOCATION)
    return chosen.name, [host.name for host in found]


def test_without_a_name_it_follows_from_the_hosts_and_the_allocation():
    assert choose() == ("local", [])
    assert choose(hosts="a,b") == ("ssh", ["a", "b"])
    assert choose(in_allocation=True) == ("slurm", ["n1", "n2"])
    assert choose(hosts="n2", in_allocation=True) == ("slurm", ["n2"])
    assert choose(hosts="a", more=[Pods()]) == ("ssh", ["a"])


def test_this_machine_alone_is_reached_without_ssh():
    for name in ("localhost", "LOCALHOST:2", "127.0.0.1:8", socket.gethostname()):
        launcher, hosts = choose(hosts=name)
        assert (launcher, len(hosts)) == ("local", 1)
    for names in ("me@localhost", "localhost,other", "127.0.0.2"):
        assert choose(hosts=names)[0] == "ssh"
    assert choose("ssh", "localhost") == ("ssh", ["localhost"])


def test_a_launcher_that_is_named_is_taken():
    assert choose("local", in_allocation=True) == ("local", [])
    assert choose("ssh", in_allocation=True) == ("ssh", ["n1", "n2"])
    assert choose("pods", "a,b", more=[Pods()]) == ("pods", ["a", "b"])


@pytest.mark.parametrize(
    ("launcher", "more", "told"),
    [
        ("shh", (), r"--dlperf-launcher: .*'shh'.* local, ssh, slurm; did you mean 'ssh'\?"),
        ("slurm", (), "slurm .* sbatch"),
        ("ssh", (), "ssh needs hosts.*DLPERF_HOSTS"),
        ("pods", (Pods(),), "pods needs hosts"),
        (None, (Pods(), Pods()), "'pods' is already registered"),
    ],
)
def test_one_that_cannot_work_is_a_usage_error(launcher, more, told):
    with pytest.raises(UsageError, match=told):
        choose(launcher, more=more)

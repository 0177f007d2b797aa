"""Runs on many nodes: what each costs stays the same, and what is said stays readable."""

import resource

import pytest
from launches import nodes_with

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.settings import LaunchVariables
from pytest_dlperf.launch import gang
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.plan import plan_run
from pytest_dlperf.launch.record import RunOrder
from pytest_dlperf.launch.remote_call import allow_connections, sent_program, source_of
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.node import probe, remains, supervisor

PIPE_BYTES = 65536  # what a pipe of Linux holds


def test_a_program_fits_into_the_pipe_that_it_is_sent_through():
    """Else who sends it would wait until the connection stands, one host after another."""
    for program in (supervisor, remains, probe):
        _, sent = sent_program("python3", source_of(program))
        assert len(sent) < PIPE_BYTES / 2


@pytest.fixture
def few_files():
    """A small number of files that this process may have open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_as_many_files_may_be_open_as_connections_need(few_files):
    allow_connections(2)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == few_files
    allow_connections(100)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 300


def planned(nodes, folder):
    """Commands that name all nodes."""
    return plan_run(
        Launch(command=("trainer", "--ips={node_endpoints}", "--rank={node_rank}")),
        case=Case.from_id(f"tiny-mlp-fp32-b4-{len(nodes)}n8g"),
        window=Window(warmup_steps=1, measured_steps=2),
        settling_steps=0,
        system_directory=folder,
        run=1,
        nodes=nodes,
        variables=LaunchVariables(),
        python="python3",
        log=folder / "tiny.log",
    )


class LostAtOnce(Launcher):
    """A launcher to hosts whose supervisors are lost as soon as they have started a program."""

    name = "lost"

    def command(self, host, program, **_):
        del host
        size = next(word for word in program if word.isdigit())
        script = (
            f'head -c {size} >/dev/null; echo \'{{"ready": "3.6"}}\'\n'
            "while read -r word rest; do case $word in\n"
            "prepare) echo '{\"prepared\": true}' ;;\n"
            "start) echo '{\"started\": 1}'; exit ;;\n"
            "esac; done"
        )
        return ["sh", "-c", script]


def test_what_is_true_of_many_hosts_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(gang, "SWEEP_LIMIT_S", 0.1)
    hosts = [Host(name=f"gpu{number:02}", address=f"10.0.0.{number}") for number in range(1, 13)]
    order = RunOrder(
        nodes=nodes_with(*(tmp_path / f"{host.name}.log" for host in hosts), hosts=hosts),
        plan=lambda nodes: planned(nodes, tmp_path),
        time_limit_s=60.0,
    )

    outcome = run_on_hosts(LostAtOnce(), order)

    named = f"hosts {', '.join(host.name for host in hosts)}: "
    assert f"{named}its supervisor" in outcome.error
    assert outcome.error.count("gpu") == len(hosts) * outcome.error.count(named)

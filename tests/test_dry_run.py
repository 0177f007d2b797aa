"""A dry run: each node's exact command, and nothing is run."""

import json
import re
import subprocess
import sys

import pytest
from trainers import SYSTEM, TinySystem

pytestmark = pytest.mark.in_process

HOSTS = ("--dlperf-launcher", "local", "--dlperf-hosts", "127.1.0.[1-2]:2")
AWKWARD = ("two words", 'it\'s "quoted"', "$HOME `id` $(id); rm -rf *", "a\\b", "", "-x", "ä|&")

# Shows what a shell has made of a printed command.
STAND_IN = """\
#!{python}
import json, os, sys
print(json.dumps({{"arguments": sys.argv[1:], "folder": os.getcwd(), "own": os.environ["OWN"]}}))
"""


def test_every_node_s_command_is_printed_and_nothing_is_run(suite, workers):
    tiny = TinySystem(suite)
    trainer = tiny.folder / "train.py"

    result = suite.run(
        "-k", "tiny and (1n2g or 2n1g)", *HOSTS, "--dlperf-dry-run",
        "--dlperf-run-dir", suite.path / "night", *workers,
    )  # fmt: skip

    assert result.ret == 0
    command = f"env TINY_HOST={{host}} {sys.executable} {trainer} {{words}} 10 1"
    expected = [
        "tiny-mlp-fp32-b4-2n1g",
        "  node 0 on 127.1.0.1: " + command.format(host="127.1.0.1", words="2 1 0"),
        "  node 1 on 127.1.0.2: " + command.format(host="127.1.0.2", words="2 1 1"),
        "tiny-mlp-fp32-b4-1n2g",
        "  node 0 on 127.1.0.1: " + command.format(host="127.1.0.1", words="1 2 0"),
        "tiny-mlp-fp32-b4-1n1g",  # the reference of their speedups
        "  node 0 on 127.1.0.1: " + command.format(host="127.1.0.1", words="1 1 0"),
        "3 cases; nothing was run",
    ]
    assert [line for line in result.outlines if line in expected] == expected
    assert "passed" not in result.parseoutcomes()
    assert tiny.starts() == []
    assert not (suite.path / "night").exists()
    assert not (suite.path / ".dlperf").exists()


def test_a_printed_command_does_in_a_shell_what_the_run_would_do(suite):
    """Whatever the values hold, each stays one argument and is not read by the shell."""
    work = suite.path / "it's a folder"
    work.mkdir()
    TinySystem(suite, launch=[f'working_directory: "{work}"'])
    program = suite.path / "stand in"
    program.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    (suite.path / "baselines" / "own").mkdir()
    (suite.path / "baselines" / "own" / "cluster.yaml").write_text(
        json.dumps(
            {
                "estimator": "steady",
                "vars": {
                    SYSTEM: {
                        "python": str(program),
                        "extra_args": list(AWKWARD),
                        "env": {"OWN": AWKWARD[2]},
                    }
                },
            }
        ),
        encoding="utf-8",
    )

    result = suite.run(
        "-k", "throughput and tiny and 1n1g", "--dlperf-dry-run", "--dlperf-cluster", "own"
    )

    [line] = [line for line in result.outlines if line.startswith("  node 0 on localhost: ")]
    done = subprocess.run(
        ["/bin/sh", "-c", line.removeprefix("  node 0 on localhost: ")],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(done.stdout)
    assert shown["arguments"][1:] == ["1", "1", "0", "10", "1", *AWKWARD]
    assert shown["folder"] == str(work)
    assert shown["own"] == AWKWARD[2]


@pytest.mark.ssh
def test_no_host_is_asked_for_a_plan(suite):
    """They are names in the user's ssh configuration, of machines that are not there."""
    TinySystem(suite)
    configuration = suite.path / "ssh_config"
    configuration.write_text("Host gpu*\n    HostName %h.invalid\n", encoding="utf-8")
    result = suite.run(
        "-k", "throughput and tiny and 2n1g", "--dlperf-dry-run",
        "--dlperf-hosts", "me@gpu[01-02]:8", "--dlperf-ssh", f"ssh -F {configuration}",
    )  # fmt: skip
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            f"  node {rank} on me@gpu0{rank + 1}: env TINY_HOST=gpu0{rank + 1}.invalid *"
            for rank in range(2)
        ]
    )


def test_secrets_are_masked(suite):
    TinySystem(suite)
    result = suite.run(
        "-k", "throughput and tiny and 1n1g", "--dlperf-dry-run",
        "--dlperf-set", f"{SYSTEM}.env.HUB_TOKEN=swordfish",
        "--dlperf-set", f"{SYSTEM}.extra_args=--api-key swordfish --password=swordfish --lr=0.1",
    )  # fmt: skip
    result.stdout.fnmatch_lines(
        ["*env TINY_HOST=* 'HUB_TOKEN=[*][*][*]' *--api-key '[*][*][*]' *--password=*[*]' --lr=0.1"]
    )
    assert "swordfish" not in result.stdout.str() + result.stderr.str()


def test_a_case_that_cannot_be_launched_is_listed_with_the_reason(suite):
    TinySystem(suite, alone=False)
    result = suite.run(
        "-k", "throughput and (tiny or arcface and 1n1g)", "--dlperf-dry-run", *HOSTS[:3],
        "127.1.0.1:1",
    )  # fmt: skip
    shown = result.stdout.str()
    assert re.search(r"tiny-mlp-fp32-b4-1n1g\n  node 0 on 127\.1\.0\.1: ", shown)
    assert re.search(r"2n1g\n  cannot be launched: \S+ needs 2 nodes of 1 device", shown)
    assert re.search(r"arcface\S+1n1g\n  cannot be launched: \S+ needs checkout", shown)


def test_with_hosts_a_case_is_measured_before_its_other_metrics_are_asked_for(
    suite,
):
    """The largest gangs first; what a speedup is over has mostly been measured by its turn."""
    suite.pytester.makeconftest(
        "def pytest_collection_finish(session):\n"
        "    for item in session.items:\n"
        "        print('turn', item.name)\n"
    )

    result = suite.run(
        "-k", "resnet18", "--dlperf-hosts", "a:2,b:2", "--dlperf-dry-run", "--capture=no"
    )

    turns = [line.removeprefix("turn ") for line in result.outlines if line.startswith("turn ")]
    case = "pytorch-resnet18-fp32-b8"
    assert turns == [
        *(f"test_throughput[{case}-{topology}]" for topology in ("2n1g", "1n1g", "1n2g")),
        *(
            f"test_metric[{case}-{topology}-{metric}]"
            for topology in ("2n1g", "1n1g", "1n2g")
            for metric in ("peak_memory", "loss")
        ),
        *(f"test_speedup[{case}-{topology}]" for topology in ("2n1g", "1n2g")),
    ]


PBS = """
from pytest_dlperf.launch.allocations import Allocator
from pytest_dlperf.launch.launchers import SshLauncher

class Pbs(Allocator):
    name = "pbs"
    launcher = SshLauncher()
    takes = ("pbs.queue",)

    def describe(self, request):
        return " ".join(["qsub", "-q", *request.options.get("pbs.queue", ("workq",))])

    def acquire(self, request, say): ...
    def release(self, allocation): ...

def pytest_dlperf_allocators(cluster):
    return [Pbs()]
"""


def test_options_of_an_engine_that_a_plugin_adds_reach_it_by_its_name(suite):
    TinySystem(suite, launch=["engines: {pbs: {queue: own}}"])
    (suite.path / "conftest.py").write_text(PBS, encoding="utf-8")

    result = suite.run(
        "-k", "throughput and tiny and 2n1g", "--dlperf-launcher", "pbs", "--dlperf-dry-run",
        "--dlperf-set", "tiny-mlp.pbs.queue=big",
    )  # fmt: skip

    assert result.ret == 0
    result.stdout.fnmatch_lines(["  | qsub -q big"])


def test_an_option_that_no_engine_takes_is_told_with_the_nearest(suite):
    TinySystem(suite, launch=["engines: {pbs: {quue: gpu}}"])
    (suite.path / "conftest.py").write_text(PBS, encoding="utf-8")

    result = suite.run("-k", "tiny", "--dlperf-dry-run", "--dlperf-set", "*.pbs.queu=gpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*--dlperf-set *.pbs.queu: *'pbs.queu'*did you mean 'pbs.queue'*: pbs.queue, slurm*",
            "*$.launch.pbs: *'pbs.quue'*did you mean 'pbs.queue'*",
        ]
    )

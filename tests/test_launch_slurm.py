"""Cases that are launched as steps of a Slurm allocation, or on nodes that it holds for a case."""

import pytest
from trainers import TinySystem

RECORDED = ("--dlperf-repeats", "1", "--dlperf-create-baselines")


@pytest.fixture
def allocation(suite, slurm, monkeypatch):
    """Four nodes with two GPUs each, which the sessions of a test run in."""
    del suite  # it clears the environment, so it comes first
    with slurm.allocation() as allocated:
        for name, value in allocated.environment.items():
            if name.startswith("SLURM"):
                monkeypatch.setenv(name, value)
        yield allocated


@pytest.mark.usefixtures("allocation")
def test_the_allocation_s_nodes_and_devices_are_the_hosts(suite, slurm):
    """All of it is used, and a case that needs more is skipped: one node, or one device."""
    tiny = TinySystem(suite, topologies=["1n1g", "4n2g", "5n1g", "1n3g"], devices="gpu")
    tiny.behave("0.01 work-0.2")

    result = suite.run("-k", "throughput and tiny", *RECORDED, "-n", "auto", "-rs")

    result.stdout.fnmatch_lines(["4 workers*"])
    assert {kind: result.parseoutcomes()[kind] for kind in ("passed", "skipped")} == {
        "passed": 2,
        "skipped": 2,
    }
    there_is = f"there is {', '.join(f'{name}:2' for name in slurm.names)}."
    result.stdout.fnmatch_lines_random(
        [f"*-5n1g needs 5 nodes of 1 device; {there_is}*", f"*-1n3g needs * 3 dev*; {there_is}*"]
    )
    starts = [line.split() for line in tiny.hosts()]
    assert sorted(host for topology, _, _, host in starts if topology == "4n2g") == slurm.addresses
    assert tiny.overlaps() == []


# ------------------------------------------------- held, from outside of any allocation


@pytest.fixture
def holding(suite, slurm, monkeypatch):
    """A Slurm whose nodes the sessions of a test hold."""
    del suite  # it clears the environment, so it comes first
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DLPERF_LAUNCHER", "sbatch")
    return slurm


def test_what_a_job_waits_for_is_told_and_has_a_limit_of_its_own(suite, holding):
    """Nothing of a run that has not begun counts towards its own limits."""
    TinySystem(suite, time_limit_s=1)

    with holding.allocation():
        result = suite.run(
            "-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1",
            "--dlperf-wait-limit", "4", "--dlperf-cluster", "local",
        )  # fmt: skip
        assert len(holding.jobs()) == 1  # the allocation

    assert result.ret == 1
    result.stdout.re_match_lines_random(
        [
            r".*waiting: Slurm job \d+ is queued: Resources \(for 4 s at most\)",
            r".*no hosts after 4 s: Slurm job \d+ is queued: Resources; --dlperf-wait-limit .*",
        ]
    )


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("job=--partition=nowhere", "*sbatch: error: *nvalid partition *"),
        ("job=--time=1-0", "*Slurm job * would never begin: the partition gives no job so much *"),
        ("srun=--bogus", "*srun: unrecognized option '--bogus'*"),
    ],
)
def test_what_slurm_refuses_is_told(option, told, suite, holding, request):
    TinySystem(suite)
    holding.run("scontrol", "update", "PartitionName=all", "MaxTime=1:00:00")
    request.addfinalizer(
        lambda: holding.run("scontrol", "update", "PartitionName=all", "MaxTime=UNLIMITED")
    )

    result = suite.run(
        "-k", "throughput and tiny and 1n1g", "--dlperf-repeats", "1",
        "--dlperf-set", f"*.slurm.{option}", "--dlperf-cluster", "local",
    )  # fmt: skip

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([told])
    assert holding.jobs() == []


def test_a_dry_run_shows_the_command(suite, monkeypatch):
    monkeypatch.setenv("DLPERF_LAUNCHER", "sbatch")
    TinySystem(suite, devices="gpu")

    result = suite.run(
        "-k", "throughput and tiny and 2n1g", "--dlperf-dry-run", "--dlperf-cluster", "local",
        "--dlperf-set", "*.slurm.job=--account=bench",
    )  # fmt: skip

    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  node 1 on host 1 of sbatch: *train.py 2 1 1 *",
            "  | sbatch *--exclusive*--gpus-per-node=1*--time=*--account=bench *--nodes=2 *",
        ]
    )

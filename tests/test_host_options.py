"""Which hosts a session uses and how it reaches them: what the user says, and where it runs."""

import re
import sys
import threading
import time

import pytest
from trainers import TinySystem

pytestmark = pytest.mark.in_process

TWO_NODES = ("-k", "throughput and tiny and 2n1g")
LOCAL = ("--dlperf-launcher", "local")
SEEDS = (
    "paddle-resnet50",
    "ngc_pytorch-resnet50",
    "pytorch-resnet50",
    "paddle-arcface_r50",
    "tensorflow-bert_base",
)


def planned_hosts(suite, *arguments):
    """The hosts that the nodes of a case would go to."""
    result = suite.run(*TWO_NODES, *LOCAL, "--dlperf-dry-run", *arguments)
    assert result.ret == 0
    found = [re.match(r"  node \d+ on (\S+): ", line) for line in result.outlines]
    return [match[1] for match in found if match]


def test_a_host_file_is_no_file_of_arguments_for_pytest(suite):
    TinySystem(suite)
    assert planned_hosts(suite) == ["localhost", "localhost"]
    (suite.path / "hosts").write_text("127.3.0.1:4\n127.3.0.2\n", encoding="utf-8")
    for given in (["--dlperf-hosts", "@hosts"], ["--dlperf-hosts=@hosts"]):
        assert planned_hosts(suite, *given) == ["127.3.0.1", "127.3.0.2"]


def test_runs_share_a_host_where_the_cluster_says_so(suite):
    tiny = TinySystem(suite)
    folder = suite.path / "baselines" / "local"
    folder.mkdir(exist_ok=True)
    (folder / "cluster.yaml").write_text("share_hosts: true\n", encoding="utf-8")
    tiny.behave("0.01 wait")

    def let_both_go_on():
        while len(tiny.starts()) < 2:
            time.sleep(0.02)
        tiny.go()

    threading.Thread(target=let_both_go_on, daemon=True).start()
    result = suite.run(
        *("-k", "throughput and tiny and 1n", *LOCAL, "--dlperf-hosts", "127.3.0.1:3", "-n", "2"),
        *("--dlperf-repeats", "1", "--dlperf-create-baselines"),
    )
    result.assert_outcomes(passed=2)
    assert len(tiny.overlaps()) == 1


def test_a_wrong_list_of_hosts_is_a_usage_error_also_where_workers_are_counted_by_it(
    suite, monkeypatch
):
    tiny = TinySystem(suite)
    monkeypatch.setenv("DLPERF_HOSTS", "a:0")
    assert suite.refused(*LOCAL).startswith("DLPERF_HOSTS: 'a:0' is no host")
    monkeypatch.setenv("DLPERF_HOSTS", "@nowhere")
    result = suite.run("-k", "tiny", *LOCAL, "-n", "auto")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: DLPERF_HOSTS: the host file 'nowhere' cannot be read: No such file *"]
    )
    assert tiny.starts() == []


def test_a_host_file_lies_where_the_user_is(suite):
    """Also for workers, and where the root folder is another one."""
    tiny = TinySystem(suite)
    (suite.path / "lists").mkdir()
    (suite.path / "lists" / "hosts").write_text("127.1.0.[1-2]:1\n", encoding="utf-8")
    result = suite.pytester.run(
        *("sh", "-c", 'cd lists && exec "$@"', "sh", sys.executable, "-m", "pytest"),
        *(f"{suite.path}/bench_tests", *TWO_NODES, *LOCAL, "--dlperf-hosts", "@hosts", "-n", "2"),
        *("--dlperf-repeats", "1", "--dlperf-create-baselines"),
    )
    assert result.ret == 0
    assert [line.split()[3] for line in sorted(tiny.hosts())] == ["127.1.0.1", "127.1.0.2"]


def test_this_machine_as_the_only_host_needs_no_ssh(suite, monkeypatch):
    tiny = TinySystem(suite)
    monkeypatch.setenv("DLPERF_SSH", "no-such-ssh")
    select = ["-k", "throughput and tiny and (1n2g or 2n1g)"]
    _, results = suite.judge(
        *select, "--dlperf-hosts", "localhost:2", "--dlperf-repeats", "1", cluster="local"
    )
    assert tiny.hosts() == ["1n2g 0 1 127.0.0.1"]
    assert [case["id"] for case in results["cases"] if case["measurement"]] == [
        "tiny-mlp-fp32-b4-1n2g"
    ]


@pytest.mark.parametrize("strict", [False, True], ids=["usual", "strict"])
def test_a_trainer_whose_checkout_is_not_set_is_skipped_and_fails_when_strict(suite, *, strict):
    arguments = ["--dlperf-strict", "-n", "2"] if strict else ["-rs"]
    result, results = suite.judge("-k", "throughput and 1n1g and not smoke", *arguments)

    outcomes = result.parseoutcomes()
    judged = {case["system"]: case["metrics"]["throughput"]["verdict"] for case in results["cases"]}
    judged.pop("pytorch-resnet18", None)
    assert judged == dict.fromkeys(SEEDS, "skipped")
    assert outcomes.keys() & {"passed", "error"} == set()
    assert ("failed" in outcomes) is strict
    for system in SEEDS:
        said = f"--dlperf-set {system}.checkout=FOLDER"
        # What is long is wrapped where the terminal ends.
        told = " ".join(result.stdout.str().split())
        assert re.search(rf"{system}-\S+ needs checkout \(folder [^;]*\): {said}", told)
        assert f"under vars, {system} in the cluster's cluster.yaml" in told

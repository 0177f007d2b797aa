"""The parts of queues that need none: logs that are followed, manifests, what cancels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from clusters.processes import wait_until
from launches import places
from msgspec.structs import replace
from suites import Suite
from trainers import TinySystem

from pytest_dlperf.config.kubernetes import JobKind, Kubernetes, Volume
from pytest_dlperf.config.slurm_container import Container
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.launch import queue as engines
from pytest_dlperf.launch import watchdog
from pytest_dlperf.launch.kubernetes.followed_log import FollowedLog
from pytest_dlperf.launch.kubernetes.manifests import group_of, manifest_of, names_of, template_of
from pytest_dlperf.launch.kubernetes.pods import Pod, PodHistory
from pytest_dlperf.launch.kubernetes.queue import KubernetesQueue
from pytest_dlperf.launch.queue import Job, NodeEnd, Phase, SilentQueueError
from pytest_dlperf.launch.queued_gang import QueuedNode
from pytest_dlperf.launch.sbatch import SbatchQueue
from pytest_dlperf.node.member import filled

SHM = "/dev/shm"  # noqa: S108 - where containers have shared memory
JOB = Job(
    name="dlperf-0123",
    purpose="tiny-mlp-fp32-b4-2n8g",
    nodes=2,
    devices_per_node=8,
    needs_devices=True,
    program=b"print(1)" * 30_000,
    limit_s=900,
    queue_limit_s=3600,
    folder=Path("job"),
    logs=(),
    reports=(),
)


def test_a_job_without_a_shared_disk_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Slurm shows a job whose nodes cannot write its output."""
    told = (
        f"JobId=26 JobName={JOB.name} JobState=FAILED Reason=JobLaunchFailure"
        " Dependency=(null) Restarts=0 BatchFlag=1 ExitCode=0:53"
    )
    answers(tmp_path, monkeypatch, sbatch="26", scontrol=told)
    queue = SbatchQueue("python3")

    state = queue.state(queue.submit(replace(JOB, folder=tmp_path)))

    assert state.phase is Phase.OVER
    assert "FAILED (JobLaunchFailure)" in state.reason
    assert "--dlperf-run-dir" in state.reason


# --------------------------------------------------------------------------------- logs


def stamped(second: int, text: str) -> bytes:
    return f"2026-11-22T10:00:{second:02}.5Z {text}\n".encode()


def follow(folder: Path, connections: Sequence[Sequence[bytes] | None]) -> FollowedLog:
    """Bring a log that comes over these connections one after another; ``None`` for no answer."""
    left = list(connections)

    def open_log(_since_s: int | None, _follow: bool) -> Iterator[bytes]:
        yield from left.pop(0) or ()

    followed = FollowedLog(
        open_log,
        lambda: len(left) <= 1,
        log=folder / "node0.log",
        reports=folder / "node0.reports",
        job="dlperf-0123",
    )
    followed.close(10)
    assert followed.is_done
    return followed


def test_a_line_comes_once_though_connections_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a line, and between lines of the same time."""
    monkeypatch.setattr("pytest_dlperf.launch.kubernetes.followed_log.AGAIN_S", 0.01)
    first, second, third = (stamped(n, f"step {n}") for n in (1, 2, 3))
    twin = stamped(2, "step 2 again")

    followed = follow(
        tmp_path,
        [
            [first + second, twin[:20]],
            None,
            [second + twin + third[:9]],
            [second, twin, third[:-1]],
        ],
    )

    assert followed.problem is None
    log = (tmp_path / "node0.log").read_text()
    assert log == "step 1\nstep 2\nstep 2 again\nstep 3"
    [*reports] = map(json.loads, (tmp_path / "node0.reports").read_text().splitlines())
    ends = [end for report in reports for end, _, _ in report["arrivals"]]
    assert {time % 10**6 for report in reports for _, time, _ in report["arrivals"]} == {500_000}
    assert ends[-1] == len(log)
    assert ends == sorted(ends)


def test_reports_are_taken_out_and_missing_lines_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_dlperf.launch.kubernetes.followed_log.AGAIN_S", 0.01)
    report = stamped(1, "") + stamped(1, 'dlperf-report dlperf-0123 {"host": "worker-0"}')

    followed = follow(
        tmp_path, [[report + stamped(1, "") + stamped(2, "step 1")], [stamped(9, "step 7")], []]
    )

    assert followed.problem is not None
    assert "rotated" in followed.problem
    assert (tmp_path / "node0.log").read_text() == "\nstep 1\nstep 7\n"
    assert '{"host": "worker-0"}\n' in (tmp_path / "node0.reports").read_text()


# ---------------------------------------------------------------------------- manifests


def test_a_job_is_one_that_the_client_knows(tmp_path: Path) -> None:
    """Read and written again by the models that are generated from Kubernetes' own schemas."""
    models = import_module("kubernetes.client")
    settings = Kubernetes(
        image="trainer:1",
        resources={"cpu": "8"},
        volumes=(Volume(path="/data", claim="datasets"), Volume(path=SHM, memory="8Gi")),
        node_selector={"pool": "h100"},
        image_pull_secrets=("registry",),
        service_account="bench",
        queue="nightly",
    )

    manifest = manifest_of(template_of(settings, tmp_path), settings, JOB, "python3")

    known = models.V1Job.from_dict(manifest)
    assert json.loads(known.to_json()) == manifest
    spec = manifest["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (2, 2, 0)
    assert spec["activeDeadlineSeconds"] == 4500
    assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "nightly"
    pod = spec["template"]["spec"]
    assert pod["activeDeadlineSeconds"] == 900
    [container] = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "8", "nvidia.com/gpu": "8"}
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert paths == ["/data", SHM]
    assert all(len(one.get("value", "")) < 128 * 1024 for one in container["env"])
    assert names_of({}, settings, "dlperf-0123", 2) == [
        "dlperf-0123-0.dlperf-0123",
        "dlperf-0123-1.dlperf-0123",
    ]


def test_a_template_of_one_s_own_is_kept_but_for_what_a_run_sets(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n"
        "spec: {replicatedJobs: [{name: workers, template: {spec: {template: {spec: {\n"
        "  tolerations: [{operator: Exists}], containers: [{name: side, image: s},\n"
        "  {name: trainer, image: t, env: [{name: A, value: b}]}]}}}}}]}\n"
    )
    settings = Kubernetes(kind=JobKind.JOB_SET, template="own.yaml")
    template = template_of(settings, tmp_path)
    job = replace(JOB, container=Container(image="other:2"))

    manifest = manifest_of(template, settings, job, "python3")

    [workers] = manifest["spec"]["replicatedJobs"]
    pod = workers["template"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["containers"][0] == {"name": "side", "image": "s"}
    assert pod["containers"][1]["image"] == "other:2"
    assert pod["containers"][1]["env"][0] == {"name": "A", "value": "b"}
    assert manifest["spec"]["failurePolicy"] == {"maxRestarts": 0}
    assert names_of(template, settings, "d", 1) == ["d-workers-0-0.d"]
    assert group_of(template, settings.kind) == "workers"


def test_a_template_that_is_something_else_is_told(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("kind: Deployment\n")
    with pytest.raises(YamlError, match=r"own.yaml:1: .*not a Job, but Deployment; 'kind' under"):
        template_of(Kubernetes(template="own.yaml"), tmp_path)
    (tmp_path / "own.yaml").write_text("kind: Job\nspec: {template: {spec: {}}}\n")
    for containers in ("", "containers: []", "containers: [{image: x}]", "containers: null"):
        (tmp_path / "own.yaml").write_text(
            f"kind: Job\nspec: {{template: {{spec: {{{containers}}}}}}}\n"
        )
        with pytest.raises(YamlError, match="a Job whose pod template declares no containers"):
            template_of(Kubernetes(template="own.yaml"), tmp_path)


def test_a_key_without_a_value_is_none(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "kind: Job\nmetadata:\n  labels:\nspec: {template: {metadata: {labels: null}, spec: {\n"
        "  nodeSelector: null, containers: [{name: t, env: null, volumeMounts: null}]}}}\n"
    )
    settings = Kubernetes(template="own.yaml", node_selector={"pool": "h100"})

    manifest = manifest_of(template_of(settings, tmp_path), settings, JOB, "python3")

    assert manifest["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "h100"}


# --------------------------------------------------------------------------------- pods


def pod(index: int, status: dict[str, Any]) -> Pod:
    return Pod.of(
        {
            "metadata": {
                "name": f"p-{index}",
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            },
            "spec": {"containers": [{"name": "trainer"}]},
            "status": status,
        }
    )


def test_an_image_that_cannot_be_pulled_is_hopeless() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling trainer:1"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "trainer", "state": waiting}]}

    state = PodHistory(2).state({}, [pod(0, {"phase": "Pending"}), pod(1, status)])

    assert state.phase is Phase.QUEUED
    assert state.broken == "pod p-1: ImagePullBackOff: Back-off pulling trainer:1"


def ended(code: int, reason: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": state}]}


def test_how_a_pod_has_ended_is_told_in_the_engine_s_words() -> None:
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    running = {"containerStatuses": [{"name": "trainer", "state": {"running": {}}}]}
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    seen = PodHistory(3)

    first = seen.state({}, [pod(0, ended(137, "OOMKilled")), pod(1, evicted), pod(2, running)])
    assert first.phase is Phase.RUNNING
    assert first.ends[0].reason == "pod p-0: OOMKilled"
    assert (first.ends[0].exit_code, first.ends[1].exit_code) == (137, None)
    assert first.ends[1].reason == "pod p-1: Evicted: low on memory"

    seen.state({}, [pod(2, {**running, "conditions": [taken]})])
    last = seen.state(None, [])
    assert (last.phase, last.reason) == (Phase.OVER, "pod p-2: PreemptionByScheduler")


def test_a_killed_supervisor_is_the_end_of_its_node(tmp_path: Path) -> None:
    reports = tmp_path / "node0.reports"
    told = [{"started": 4711}, {"supervisor_killed": "was stopped"}, {"asked": True}]
    reports.write_text("".join(f"{json.dumps(one)}\n" for one in told))
    [place] = places(tmp_path / "node0.log")
    node = QueuedNode(0, place, reports)

    node.refresh()

    assert node.is_done
    assert node.failed_by_itself
    [problem] = node.close()
    assert problem.startswith("host of node 0: its supervisor was stopped")


@pytest.mark.parametrize("is_asked_first", [True, False])
def test_a_node_fails_by_itself_unless_its_engine_had_asked_it_to_end(
    is_asked_first: bool, tmp_path: Path
) -> None:
    reports = tmp_path / "node0.reports"
    told = [{"started": 4711}, {"asked": True}, {"ended": 143}]
    told = told if is_asked_first else [told[0], told[2], told[1]]
    reports.write_text("".join(f"{json.dumps(one)}\n" for one in told))
    [place] = places(tmp_path / "node0.log")
    node = QueuedNode(0, place, reports)
    node.refresh()
    assert node.failed
    assert node.failed_by_itself is not is_asked_first


def test_of_an_end_without_any_reason_no_node_is_blamed(tmp_path: Path) -> None:
    [place] = places(tmp_path / "node0.log")
    node = QueuedNode(0, place, tmp_path / "node0.reports")
    node.end = NodeEnd(exit_code=None)
    assert node.failed
    assert not node.failed_by_itself
    node.end = NodeEnd(exit_code=None, reason="pod p-0: Evicted")
    assert node.failed_by_itself


# -------------------------------------------------------------------------- what cancels


def test_what_cancels_uses_the_same_kubeconfig_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "a/config:/b")

    *_, chosen = KubernetesQueue(Kubernetes(), tmp_path, "python3").cancel_command("dlperf-0123")

    assert json.loads(chosen)["KUBECONFIG"] == f"{tmp_path}/a/config:/b"


def test_a_job_is_cancelled_until_that_has_worked(tmp_path: Path) -> None:
    """By a process that outlives whoever has submitted it."""
    tries = tmp_path / "tries"
    cancel = ["sh", "-c", f"echo >> '{tries}'; test $(wc -l < '{tries}') -gt 1"]
    program = tmp_path / "program.py"
    program.write_text("HF_TOKEN", encoding="utf-8")
    submitter = (
        "from pytest_dlperf.launch.watchdog import Watchdog; import json, os, pathlib, sys\n"
    )
    submitter += "dog = Watchdog(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
    submitter += "dog.submitted(); os._exit(1)\n"

    arguments = [json.dumps(cancel), program.name]
    subprocess.run([sys.executable, "-c", submitter, *arguments], check=False, cwd=tmp_path)

    wait_until(lambda: tries.exists() and len(tries.read_text()) == 2, what="both tries")
    assert not program.exists()
    quiet = watchdog.Watchdog(["touch", str(tmp_path / "never")])
    quiet.submitted()
    quiet.close(is_over=True)
    assert not (tmp_path / "never").exists()


def test_what_only_the_nodes_know_is_put_into_commands() -> None:
    addresses = ["10.0.0.1", "fd00::2"]
    order = {"arguments": ["@dlperf-address-1@:20008,@dlperf-address-0@", "-x"], "n": 1}
    assert filled(order, addresses, "n1") == {
        "arguments": ["[fd00::2]:20008,10.0.0.1", "-x"],
        "n": 1,
    }
    assert filled("@dlperf-address-1@ @dlperf-host@", addresses, "n1") == "fd00::2 n1"


# ------------------------------------------------------------------------ what Slurm answers


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, **printed: str) -> None:
    """Have commands of Slurm's print something else than it would."""
    for name, text in printed.items():
        (folder / name).write_text(f"#!/bin/sh\nprintf '%s' '{text}'\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("printed", "handle"),
    [("42\n", "42"), ("5 credits\n42;north\n", "42;north"), ("Submitted batch job 42\n", "42")],
    ids=("plain", "wrapped", "unparsable"),
)
def test_the_number_of_a_job_is_found_in_what_a_site_s_wrapper_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, handle: str
) -> None:
    answers(tmp_path, monkeypatch, sbatch=printed)
    assert SbatchQueue("python3").submit(replace(JOB, folder=tmp_path)) == handle


@pytest.mark.parametrize("printed", ["", "ok\n"])
def test_a_job_of_unknown_number_may_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    """It is cancelled by its name then; nobody needs the program, which holds secrets."""
    answers(tmp_path, monkeypatch, sbatch=printed)
    with pytest.raises(SilentQueueError, match=printed.strip() or "nothing"):
        SbatchQueue("python3").submit(replace(JOB, folder=tmp_path))
    assert not (tmp_path / "program.py").exists()


def test_neither_no_answer_nor_one_about_another_job_is_taken_for_this_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(tmp_path, monkeypatch, sbatch="42\n", scontrol="")
    queue = SbatchQueue("python3")
    handle = queue.submit(replace(JOB, folder=tmp_path))
    with pytest.raises(SilentQueueError, match="42"):
        queue.state(handle)
    answers(tmp_path, monkeypatch, scontrol="JobId=42 JobName=mine JobState=RUNNING Reason=None")
    state = queue.state(handle)
    assert (state.phase, state.reason) == (Phase.OVER, "Slurm has another job of this number")


def test_what_hangs_is_told_with_what_to_do_and_nothing_is_waited_for_but_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(tmp_path, monkeypatch, sbatch="42")
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho 42$SBATCH_WAIT\n", encoding="utf-8")
    monkeypatch.setenv("SBATCH_WAIT", "1")
    assert SbatchQueue("python3").submit(replace(JOB, folder=tmp_path)) == "42"
    monkeypatch.setattr(engines, "CALL_LIMIT_S", 0.2)
    (tmp_path / "sbatch").write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    with pytest.raises(SilentQueueError, match=r"did not answer within 0\.2 s; try it by hand"):
        SbatchQueue("python3").submit(replace(JOB, folder=tmp_path))


SILENT: Final = """
from pytest_dlperf.launch.queue import Queue, SilentQueueError

class Silent(Queue):
    name = "silent"
    rank_variable = "RANK"
    def dry_run_text(self, job): ...
    def submit(self, job): raise SilentQueueError("qsub: silence")
    def state(self, handle): ...
    def cancel(self, handle): ...
    def cancel_command(self, name): return ["sh", "-c", "kill -9 $PPID"]  # which calls it for long

def pytest_dlperf_queues(cluster):
    return [Silent()]
"""


@pytest.mark.in_process
def test_a_job_that_may_be_there_is_told_with_how_it_is_cancelled(suite: Suite) -> None:
    TinySystem(suite)
    (suite.path / "conftest.py").write_text(SILENT, encoding="utf-8")
    result = suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-launcher", "silent")
    told = "*qsub: silence; whether it has taken the job is not known*, by: sh -c 'kill *"
    result.stdout.fnmatch_lines([told])
    result.assert_outcomes(failed=1)


def test_killed_tasks_are_those_of_the_job_whatever_numbers_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = f"JobId=42 JobName={JOB.name} JobState=RUNNING Reason=None"
    answers(tmp_path, monkeypatch, sbatch="42\n", scontrol=told)
    queue = SbatchQueue("python3")
    handle = queue.submit(replace(JOB, folder=tmp_path, nodes=6))
    printed = ["1", "3-999999999", "0-1-2", "9" * 5000, "4-,-,2"]
    lines = [f"srun: error: gpu1: tasks {ranks}: Killed\n" for ranks in printed]
    (tmp_path / "output.log").write_text("".join(lines), encoding="utf-8")
    assert sorted(queue.state(handle).ends) == [1, 2, 3, 4, 5]

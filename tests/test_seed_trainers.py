"""Each seed system's own plan drives a stand-in for its trainer, on one to four nodes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from clusters.ports import worker_number
from clusters.processes import processes_with
from seed_trainers.meeting import MEETINGS
from seed_trainers.pace import FIRST_STEP, SPEED

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator

pytestmark = pytest.mark.slow

STAND_INS = Path(__file__).parent / "seed_trainers"
SCRIPT = """\
from seed_trainers.{module} import main

if __name__ == "__main__":
    main()
"""
# What the shipped program takes from TensorFlow's models and from absl.
BERT = {
    "absl/__init__.py": "app, flags",
    "official/utils/misc/distribution_utils.py": "configure_cluster, get_distribution_strategy",
    "official/utils/misc/keras_utils.py": "set_session_config",
}
PLSC = "from seed_trainers.plsc_entry import Entry\n\n__all__ = ['Entry']\n"
PADDLE_LAUNCH = ("paddle/distributed/launch.py", "paddle_launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One system: what its checkout holds, and what the user has to set beside the checkout.

    ``programs`` are (path in the checkout, stand-in); ``data`` are files in the data folder.
    """

    name: str
    programs: tuple[tuple[str, str], ...]
    data: tuple[str, ...] = ()
    goes_on: bool = False
    """Whether the trainer never ends by itself."""


SEEDS = (
    Seed(
        name="paddle-resnet50",
        programs=(PADDLE_LAUNCH, ("train.py", "paddle_resnet")),
        data=("train_list.txt",),
    ),
    Seed(
        name="ngc_pytorch-resnet50",
        programs=(("multiproc.py", "ngc_multiproc"), ("main.py", "ngc_resnet")),
        data=("train/n01440764/1.JPEG",),
    ),
    Seed(
        name="pytorch-resnet50",
        programs=(("main.py", "pytorch_imagenet"),),
        data=("train/n01440764/1.JPEG",),
        goes_on=True,
    ),
    Seed(
        name="paddle-arcface_r50",
        programs=(PADDLE_LAUNCH,),
        goes_on=True,
    ),
    Seed(
        name="tensorflow-bert_base",
        programs=(("official/nlp/bert/run_pretraining.py", "bert_pretraining"),),
        data=("part-00000.tfrecord", "part-00001.tfrecord"),
    ),
)

# What only the cases of some topologies of these systems would need; their plans are for all.
NOT_PUBLISHED = (
    "    topologies: [1n1g, 1n4g, 1n8g]\n",
    """\
    topologies: [1n1g, 1n4g, 1n8g, 2n8g, 4n8g]
  - precision: amp
    batch_per_device: 256
    topologies: [2n8g]
""",
)


class Trainers:
    """The stand-ins of one system in a suite."""

    def __init__(self, suite, seed):
        """Lay them out as a user would have them: the checkout, the data and whatever else."""
        self.suite = suite
        self.seed = seed
        # A blank in all paths: each has to stay one argument.
        self.folder = suite.path / "stand ins"
        self.checkout = self.folder / "checkout"
        self._write_programs()
        for name in seed.data:
            file = self.folder / "data" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("an example")
        self.night = suite.path / "night"
        self._meetings = suite.path / "meetings.jsonl"
        self.set = [
            "*.pause_s=0",
            f"{seed.name}.checkout={self.checkout}",
            f"{seed.name}.env.{MEETINGS}={self._meetings}",
            # Python itself would write there where it can.
            f"{seed.name}.env.PYTHONDONTWRITEBYTECODE=1",
        ]
        if seed.data:
            self.set.append(f"{seed.name}.data={self.folder / 'data'}")
        if seed.name == "paddle-arcface_r50":
            (self.checkout / "plsc").mkdir()
            (self.checkout / "plsc" / "__init__.py").write_text(PLSC)
        if seed.name == "paddle-resnet50":
            # Paddle is installed; its system's checkout need not be where Python looks.
            self.set.append(f"{seed.name}.env.PYTHONPATH={self.checkout}")
            (self.folder / "DALI_extra").mkdir()
            self.set.append(f"{seed.name}.dali_extra={self.folder / 'DALI_extra'}")
        if seed.name == "tensorflow-bert_base":
            for path, names in BERT.items():
                file = self.checkout / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"from seed_trainers.bert_pretraining import {names}\n")
            config = self.folder / "bert_config.json"
            config.write_text('{"num_hidden_layers": 12}')
            self.set.append(f"{seed.name}.bert_config={config}")
        if seed.name == "ngc_pytorch-resnet50":
            file = suite.path / "bench_tests" / "systems" / f"{seed.name}.yaml"
            text = file.read_text(encoding="utf-8")
            assert text.count(NOT_PUBLISHED[0]) == 1
            file.write_text(text.replace(*NOT_PUBLISHED), encoding="utf-8")
        self._lock_checkout()

    def _lock_checkout(self):
        """Make the checkout read-only, as far as this user minds; and keep what it looks like."""
        folders = [self.checkout, *(path for path in self.checkout.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        self._untouched = self._looks()

    def _looks(self):
        paths = [self.checkout, *self.checkout.rglob("*")]
        found = {str(path): path.lstat() for path in paths}
        return {path: (status.st_mtime_ns, status.st_size) for path, status in found.items()}

    def check_checkout(self):
        """Nothing was left in the checkout, by whoever might have been able to."""
        assert self._looks() == self._untouched

    def _write_programs(self):
        for path, module in self.seed.programs:
            program = self.checkout / path
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(SCRIPT.format(module=module))
        (self.checkout / STAND_INS.name).symlink_to(STAND_INS)

    @property
    def system(self):
        file = self.suite.path / "bench_tests" / "systems" / f"{self.seed.name}.yaml"
        return load_systems([file], BUILTIN_FORMATS)[self.seed.name]

    def cases(self):
        """As few as have each topology, precision, batch and set of options; many nodes first."""

        def values(case):
            return {str(case.topology), case.precision, case.batch_per_replica, tuple(case.options)}

        cases, chosen = self.system.cases[::-1], list[Case]()
        missing = set[object]().union(*map(values, cases))
        while missing:
            chosen.append(max(cases, key=lambda case: len(missing & values(case))))
            missing -= values(chosen[-1])
        return chosen

    def judge(self, cases, *arguments, cluster):
        """Launch the cases and give their results by id; all have to come out well."""
        selected = " or ".join(case.id for case in cases)
        settings = [text for one in self.set for text in ("--dlperf-set", one)]
        result, results = self.suite.judge(
            "-k", f"throughput and ({selected})",
            "--dlperf-repeats", "1", "--dlperf-create-baselines",
            *settings, *arguments, cluster=cluster,
        )  # fmt: skip
        reasons = {case["id"]: case["measurement"] for case in results["cases"]}
        assert result.ret == 0, reasons
        return {case["id"]: case for case in results["cases"]}

    def meetings(self):
        """What the processes of each run have agreed on."""
        return [json.loads(line) for line in self._meetings.read_text().splitlines()]

    def record(self, case):
        """The run's command.json."""
        [file] = (self.night / case.system).glob(
            f"{'+'.join(case.options) or '.'}/{case.topology}/"
            f"*_b{case.batch_per_replica}_{case.precision}_1/command.json"
        )
        return json.loads(file.read_text(encoding="utf-8"))


def value_of(arguments, flag):
    """The value of an option, written ``--a=b`` or ``--a b``."""
    for argument, behind in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == flag:
            return behind
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    raise AssertionError(f"no {flag} in {arguments}")


def expected_throughput(case, estimator):
    """What the stand-ins declare; where the published arithmetic takes the first step in, less."""
    nodes, devices = case.topology.nodes, case.topology.devices_per_node
    speed = SPEED * case.topology.world_size
    if case.model == "arcface_r50" and estimator is Estimator.PUBLISHED:
        # Lines 5 to 15 for each node, of all ranks of the first node; the first lines are slow.
        slow = max(0, devices - 5 * nodes)
        return speed * (slow / FIRST_STEP + 10 * nodes - slow) / (10 * nodes)
    return speed


def throughput(judged):
    """What the one run of a case came to."""
    [run] = judged["measurement"]["runs"]
    assert (run["status"], run["reason"] or "") == ("ok", ""), judged["id"]
    return run["metrics"]["throughput"]


def check_commands(case, nodes, hosts):
    """Each node was told who it is, where the others are, and its batch."""
    batch, devices = case.batch_per_replica, case.topology.devices_per_node
    several = case.topology.nodes > 1
    assert [node["host"] for node in nodes] == list(hosts[: case.topology.nodes])
    for rank, node in enumerate(nodes):
        arguments = node["arguments"]
        if case.system == "tensorflow-bert_base":
            assert value_of(arguments, "--train_batch_size") == str(case.global_batch)
            if several:
                workers = value_of(arguments, "--worker_hosts").split(",")
                assert [worker.rpartition(":")[0] for worker in workers] == [*hosts[: len(nodes)]]
                assert value_of(arguments, "--task_index") == str(rank)
            continue
        if case.system == "paddle-resnet50":
            assert value_of(arguments, "--batch_size") == str(batch * devices)
        if case.framework == "paddle" and several:
            ips = value_of(arguments, "--cluster_node_ips")
            assert ips == ",".join(hosts[: len(nodes)])
            assert value_of(arguments, "--node_ip") == hosts[rank]
            [started] = {value_of(node["arguments"], "--started_port") for node in nodes}
            assert 20000 <= int(started) < 29000
        if case.system == "ngc_pytorch-resnet50":
            assert value_of(arguments, "-b") == str(batch)
            assert value_of(arguments, "--node_rank") == str(rank)
            assert value_of(arguments, "--master_addr") == hosts[0]
        if case.system == "pytorch-resnet50":
            assert value_of(arguments, "--batch-size") == str(batch * devices)
            assert value_of(arguments, "--rank") == str(rank)
            assert re.fullmatch(
                rf"tcp://{re.escape(hosts[0])}:\d+", value_of(arguments, "--dist-url")
            )


def check(  # noqa: PLR0913 - all that is held against each other
    trainers,
    cases,
    judged,
    *,
    estimator,
    hosts,
    launcher,
):
    assert set(judged) == {case.id for case in cases}
    trainers.check_checkout()
    # As often as they were launched, and with flags that mean the same to the trainer.
    meetings = trainers.meetings()
    assert Counter(meeting["case"] for meeting in meetings) == Counter(
        f"{case.variant}-{case.topology}" for case in cases
    )
    places = {meeting["case"]: meeting["places"] for meeting in meetings}
    for case in cases:
        expected = expected_throughput(case, estimator)
        assert throughput(judged[case.id]) == pytest.approx(expected, rel=5e-3), case.id
        topology = case.topology
        devices = list(range(topology.devices_per_node))
        assert places[f"{case.variant}-{topology}"] == [
            {"node": node, "device": device}
            for node in range(topology.nodes)
            for device in ([devices] if case.model == "bert_base" else devices)
        ]
        record = trainers.record(case)
        assert record["launcher"] == launcher
        assert len(record["nodes"]) == topology.nodes
        check_commands(case, record["nodes"], hosts)
        if trainers.seed.goes_on:
            assert record["stop"] == "complete"
            assert all(node["exit_code"] != 0 for node in record["nodes"])
        for node in record["nodes"]:
            assert Path(node["log"]).stat().st_size
            for text in node["arguments"]:
                left = re.search(r"/tmp/pytest-dlperf-[^/]*", text)  # noqa: S108 - ours
                assert left is None or not Path(left[0]).exists()


SPAWNING = """\
import multiprocessing
from types import SimpleNamespace

from seed_trainers import dali


def worker():
    images = SimpleNamespace(root="/data/train")
    loader = dali.torch.utils.data.DataLoader(images, batch_size=128, num_workers=1, sampler=None)
    print(type(loader).__name__)


def main():
    process = multiprocessing.get_context("spawn").Process(target=worker)
    process.start()
    process.join()
"""


def test_dali_reads_in_processes_that_the_example_spawns(tmp_path):
    (tmp_path / "main.py").write_text(SPAWNING)
    program = STAND_INS.parent.parent / "bench_tests" / "trainers" / "imagenet_dali.py"
    environment = {"PYTHONPATH": f"{tmp_path}:{STAND_INS.parent}"}
    ran = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "TrainingLoader\n", ran.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("seed", "estimator"),
    [
        pytest.param(seed, estimator, id=f"{seed.name}-{estimator.value}")
        for seed in SEEDS
        # By the estimator a trainer is ended that would go on; one that ends leaves the same log.
        for estimator in (Estimator if seed.goes_on else [Estimator.STEADY])
    ],
)
def test_a_seed_s_plan_drives_its_trainer_on_one_to_four_nodes(suite, seed, estimator, worker_id):
    trainers = Trainers(suite, seed)
    cases = trainers.cases()
    if seed.goes_on and estimator is Estimator.STEADY:
        # What they execute is as for the other one.
        cases = [case for case in cases if str(case.topology) in {"1n1g", "4n8g"}]
    hosts = [f"127.0.{worker_number(worker_id)}.{number}" for number in range(2, 6)]
    for one in Estimator:
        (suite.path / "baselines" / one.value).mkdir()
        cluster = suite.path / "baselines" / one.value / "cluster.yaml"
        cluster.write_text(f"estimator: {one.value}\n")

    judged = trainers.judge(
        cases, "--dlperf-hosts", ",".join(f"{host}:8" for host in hosts),
        "--dlperf-launcher", "local", "--dlperf-run-dir", str(trainers.night),
        cluster=estimator.value,
    )  # fmt: skip

    check(trainers, cases, judged, estimator=estimator, hosts=hosts, launcher="local")
    assert (suite.path / "baselines" / estimator.value / f"{seed.name}.yaml").is_file()
    assert processes_with(f"{suite.path}/") == []

    if not seed.goes_on:
        again = trainers.judge(
            cases, "--dlperf-logs", f"{seed.name}={trainers.night / seed.name}", cluster="published"
        )
        assert {name: throughput(case) for name, case in again.items()} == {
            case.id: pytest.approx(expected_throughput(case, Estimator.PUBLISHED), rel=5e-3)
            for case in cases
        }


@pytest.mark.ci
@pytest.mark.parametrize("seed", [SEEDS[2]], ids=lambda seed: seed.name)
def test_a_seed_s_plan_drives_its_trainer_over_ssh(suite, seed, ssh_hosts):
    trainers = Trainers(suite, seed)
    cases = [case for case in trainers.cases() if str(case.topology) == "4n8g"][:1]

    judged = trainers.judge(
        cases, "--dlperf-hosts", ",".join(f"{name}:8" for name in ssh_hosts.names),
        "--dlperf-ssh", ssh_hosts.ssh_command, "--dlperf-run-dir", str(trainers.night),
        cluster="local",
    )  # fmt: skip

    check(
        trainers,
        cases,
        judged,
        estimator=Estimator.STEADY,
        hosts=ssh_hosts.names,
        launcher="ssh",
    )
    assert processes_with(f"{suite.path}/") == []
    assert ssh_hosts.processes() == []


def test_a_training_with_another_loss_than_the_case_s_is_refused(suite):
    """As by a script of one's own that reads its arguments wrong."""
    [seed] = [seed for seed in SEEDS if seed.name == "paddle-arcface_r50"]
    trainers = Trainers(suite, seed)
    wrong = f"{seed.name}.extra_args=--loss_type=softmax"

    result, results = suite.judge(
        "-k", "throughput and arcface_r50 and 1n1g", "--dlperf-repeats", "1",
        "--dlperf-hosts", "127.0.0.1:1", "--dlperf-launcher", "local",
        *(text for one in (*trainers.set, wrong) for text in ("--dlperf-set", one)),
        cluster="local",
    )  # fmt: skip

    assert result.ret == 1
    [case] = results["cases"]
    [run] = case["measurement"]["runs"]
    assert run["status"] == "invalid"
    # What an option gave is hidden in messages.
    assert (
        "Set loss_type to ***; the case paddle-arcface_r50-fp32-b128-1n1g has arcface"
        in run["reason"]
    )

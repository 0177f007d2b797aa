"""The scripts of the original benchmark's systems, driven by their plans with stand-ins."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import seed_trainer
from clusters.ports import worker_number
from clusters.processes import processes_with

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

pytestmark = pytest.mark.slow

# System with a script of ours -> programs of its checkout, and what each runs of the stand-in.
PROGRAMS = {
    "paddle-arcface_r50": {
        "paddle/distributed/launch.py": "paddle_launch()",
        "plsc/__init__.py": "Entry",
    },
    "tensorflow-bert_base": {
        "official/nlp/bert/run_pretraining.py": "bert_pretraining as main",
        "absl/__init__.py": "app, flags",
        "official/utils/misc/distribution_utils.py": "configure_cluster, get_distribution_strategy",
        "official/utils/misc/keras_utils.py": "set_session_config",
    },
}


class Trainer:
    """A system's stand-in in a suite, as a user would have it: a checkout, and data."""

    def __init__(self, suite, name):
        self.suite, self.name = suite, name
        # A blank in all paths: each has to stay one argument.
        self.folder = suite.path / "stand ins"
        self.checkout = self.folder / "checkout"
        for path, program in PROGRAMS[name].items():
            file = self.checkout / path
            file.parent.mkdir(parents=True, exist_ok=True)
            call = program.partition("(")[0]
            text = f"from seed_trainer import {call}\n"
            file.write_text(f"{text}{program}\n" if "(" in program else text)
        shutil.copy(seed_trainer.__file__, self.checkout)
        data = self.folder / "data"
        data.mkdir()
        for file in ("train_list.txt", "part-00000.tfrecord"):
            (data / file).write_text("an example")
        self.set = {"checkout": self.checkout, "env.PYTHONDONTWRITEBYTECODE": "1"}
        if name == "tensorflow-bert_base":
            self.set |= {"bert_config": data / "train_list.txt", "data": data}

    @property
    def cases(self):
        """One of the fewest devices, and one of the most."""
        file = self.suite.path / "bench_tests" / "systems" / f"{self.name}.yaml"
        cases = load_systems([file], BUILTIN_FORMATS)[self.name].cases
        cases = [case for case in cases if "dali" not in case.options]
        in_order = sorted(cases, key=lambda case: case.topology.world_size)
        return [in_order[0], in_order[-1]]

    def judge(self, cases, *arguments, cluster="local"):
        """Launch the cases and give their one run each by id."""
        result, results = self.suite.judge(
            "-k", f"throughput and ({' or '.join(case.id for case in cases)})",
            "--dlperf-repeats", "1", "--dlperf-set", "*.pause_s=0",
            *(f"--dlperf-set={self.name}.{key}={value}" for key, value in self.set.items()),
            *arguments, cluster=cluster,
        )  # fmt: skip
        runs = {case["id"]: case["measurement"]["runs"] for case in results["cases"]}
        return result.ret, {name: run for name, [run] in runs.items()}

    def check(self, cases, runs, night):
        """Each has the stand-in's throughput, its nodes, and left nothing elsewhere."""
        assert {name: run["metrics"].get("throughput") for name, run in runs.items()} == {
            case.id: pytest.approx(seed_trainer.SPEED * case.topology.world_size, rel=5e-3)
            for case in cases
        }, runs
        records = [json.loads(file.read_text()) for file in night.rglob("command.json")]
        assert sorted(len(record["nodes"]) for record in records) == sorted(
            case.topology.nodes for case in cases
        )
        if self.name == "paddle-arcface_r50":  # it would go on for ever
            assert {record["stop"] for record in records} == {"complete"}
        assert processes_with(f"{self.suite.path}/") == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_drives_its_trainer_on_one_device_and_on_all_nodes(suite, name, worker_id):
    trainer = Trainer(suite, name)
    cases, night = trainer.cases, suite.path / "night"
    before = {path: path.stat().st_mtime_ns for path in trainer.checkout.rglob("*")}
    hosts = ",".join(f"127.0.{worker_number(worker_id)}.{number}:8" for number in range(2, 6))

    code, runs = trainer.judge(
        cases, "--dlperf-hosts", hosts, "--dlperf-launcher", "local",
        "--dlperf-run-dir", str(night), "--dlperf-create-baselines",
    )  # fmt: skip

    assert code == 0, runs
    trainer.check(cases, runs, night)
    assert {path: path.stat().st_mtime_ns for path in trainer.checkout.rglob("*")} == before


def test_a_training_with_another_loss_than_the_case_s_is_refused(suite):
    """As by a script of one's own that reads its arguments wrong."""
    trainer = Trainer(suite, "paddle-arcface_r50")
    case, _ = trainer.cases
    trainer.set["extra_args"] = "--loss_type=softmax"

    code, runs = trainer.judge(
        [case], "--dlperf-hosts", "127.0.0.1:1", "--dlperf-launcher", "local"
    )

    assert code == 1
    assert runs[case.id]["status"] == "invalid"
    # What an option gave is hidden in messages.
    assert f"Set loss_type to ***; the case {case.id} has arcface" in runs[case.id]["reason"]


DALI = """\
import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock

for name in ("torch", "nvidia", "nvidia.dali", "nvidia.dali.pipeline", "nvidia.dali.plugin"):
    sys.modules[name] = MagicMock()
for name in ("torch.distributed", "torch.utils", "torch.utils.data"):
    sys.modules[name] = getattr(sys.modules["torch"], name.rpartition(".")[2])
torch = sys.modules["torch"]
torch.utils.data = sys.modules["torch.utils.data"] = ModuleType("torch.utils.data")
torch.utils.data.DataLoader = lambda dataset, **given: "the example's"
torch.cuda.current_device.return_value = 1
torch.distributed.get_rank.return_value, torch.distributed.get_world_size.return_value = 9, 16


class Pipeline:
    def __init__(self, batch, threads, device, seed):
        assert (batch, threads, device, seed) == (128, 3, 1, 13)

    def build(self):
        ops.FileReader.return_value.return_value = ("files", "classes")
        assert self.define_graph()[1] == "classes"
        shares = ops.FileReader.call_args.kwargs
        assert (shares["shard_id"], shares["num_shards"]) == (9, 16)

    def epoch_size(self, reader):
        return 1_281_167


class Iterator:
    def __init__(self, pipeline, size):
        assert size == 1_281_167 // 16

    def __iter__(self):
        label = MagicMock()
        label.reshape.return_value.long.return_value = "label"
        yield from [[{"data": "image", "label": label}]] * 2

    def reset(self):
        pass


ops = sys.modules["nvidia.dali"].ops
sys.modules["nvidia.dali.pipeline"].Pipeline = Pipeline
sys.modules["nvidia.dali.plugin.pytorch"] = ModuleType("nvidia.dali.plugin.pytorch")
sys.modules["nvidia.dali.plugin.pytorch"].DALIClassificationIterator = Iterator
"""
EXAMPLE = """\
import multiprocessing
from types import SimpleNamespace

import dali


def load():
    for part in ("train", "val"):
        images = SimpleNamespace(root=f"/data/{part}")
        loader = dali.torch.utils.data.DataLoader(images, batch_size=128, num_workers=3)
        print(list(loader) if part == "train" else loader, flush=True)


def main():
    process = multiprocessing.get_context("spawn").Process(target=load)
    process.start()
    process.join()
"""


def test_dali_reads_the_images_of_training_in_processes_that_the_example_spawns(tmp_path):
    (tmp_path / "dali.py").write_text(DALI)
    (tmp_path / "main.py").write_text(EXAMPLE)
    program = Path(__file__).parent.parent / "bench_tests" / "trainers" / "imagenet_dali.py"
    ran = subprocess.run(
        [sys.executable, program], env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert ran.stdout == "[('image', 'label'), ('image', 'label')]\nthe example's\n", ran.stderr

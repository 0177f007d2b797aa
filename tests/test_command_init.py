"""``pytest-dlperf init``: from a training of one's own to the smallest suite that runs."""

import contextlib
import json
import os
import re
import shlex
import stat
import sys
from pathlib import Path

import pytest

from pytest_dlperf.command.main import main
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

LOGS = Path(__file__).parent / "data" / "logs"
ROOT = Path(__file__).parent.parent
STEPS_OF_ITS_OWN = """\
import argparse, time
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
parser.add_argument("--steps", type=int)
given = parser.parse_args()
for step in range(1, given.steps + 1):
    time.sleep(0.002)
    print(f"step {step} loss {3 / step:.5f} took {0.002 + step % 3 * 0.0001:.5f} s", flush=True)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of somebody's own, on a machine without GPUs and Slurm."""
    empty = tmp_path / "programs"
    empty.mkdir()
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(empty))
    # Its sessions wait for no other on this machine.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("DLPERF_LOCK", os.urandom(8).hex())
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return folder


TWO_GPUS = "<nvidia_smi_log><gpu></gpu><gpu></gpu></nvidia_smi_log>"


def program(name, prints):
    """Put a program on the path that prints some text."""
    file = Path.cwd().parent / "programs" / name
    file.write_text(f"#!{sys.executable}\nprint({prints!r})\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def written(project):
    """The one system of the suite, as a session reads it, with its launch."""
    (system,) = load_systems((project / "bench_tests/systems").iterdir(), BUILTIN_FORMATS).values()
    return system


def arguments(system):
    return system.launch.arguments(system.cases[0])


def test_a_torchrun_command_becomes_a_suite(project, capsys):
    (project / "train.py").write_text("import torch\nprint('nothing')\n", encoding="utf-8")
    (project / ".git").mkdir()
    command = "torchrun --nproc-per-node 2 train.py --batch 32 --steps 60 --bf16"
    assert main(["init", "--no-run", "--command", command]) == 0
    ignored = (project / "baselines/.gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/local/", "/*/.lock"} <= set(ignored)
    system = written(project)
    assert [case.id for case in system.cases] == ["pytorch-mine-bf16-b32-1n2g"]
    assert (system.window.warmup_steps, system.window.measured_steps) == (12, 48)
    given = arguments(system)
    own = ("train.py", "--batch", "{batch_per_device}", "--steps", "{steps}", "--bf16")
    assert own == given[-7:-1]
    assert "--nproc-per-node={devices_per_node}" in given
    printed = capsys.readouterr().out
    assert "log.step(loss=loss)" in printed
    assert "pytest bench_tests --dlperf-create-baselines" in printed
    assert main(["check"]) == 0


@pytest.mark.parametrize(
    ("script", "command", "words"),
    [
        # The file that it is written to will be committed.
        (
            "import torch\n",
            "torchrun train.py --batch 32 --wandb-key swordfish",
            ("launch: the command holds what looks like a secret", "swordfish"),
        ),
        # Else a case with a guessed batch would be green.
        (
            "import torch\n",
            "torchrun train.py --seq-length 128",
            ("log = StepLog(batch_per_device=BATCH)", "secret"),
        ),
        (
            "import torch\nfrom pytest_dlperf.trainers import StepLog\n",
            "torchrun train.py",
            ("next", "StepLog"),
        ),
    ],
)
def test_what_is_to_be_known_of_a_command_is_told(project, capsys, script, command, words):
    said, unsaid = words
    (project / "train.py").write_text(script, encoding="utf-8")
    assert main(["init", "--no-run", "--command", command]) == 0
    told = capsys.readouterr().out
    assert said in told
    assert unsaid not in told
    assert written(project).unit == ("tokens/s" if "seq" in command else "samples/s")


def take_marks_away(folder):
    """As somebody does who has looked at what was guessed."""
    for file in (folder / "bench_tests/systems").glob("*.yaml"):
        file.write_text(re.sub(" # [?].*", "", file.read_text("utf-8")), encoding="utf-8")


@pytest.mark.end_to_end
def test_a_script_that_nobody_knows_is_run_once_and_then_measured(pytester, project, capfd):
    """From a command to a verdict, without a regular expression of one's own."""
    (project / "train.py").write_text(STEPS_OF_ITS_OWN, encoding="utf-8")
    assert main(["init", "--command", "python train.py --batch 8 --steps 40"]) == 0
    assert "steps 1 to 40" in capfd.readouterr().out
    system = written(project)
    assert system.id == "pytorch-mine"
    assert [metric.name for metric in system.metrics if metric.is_judged][-1] == "loss"
    take_marks_away(project)
    created = pytester.run(
        *(sys.executable, "-m", "pytest", "-p", "no:benchmark", f"--rootdir={project}"),
        *(project / "bench_tests", "--dlperf-create-baselines", "--dlperf-repeats=1"),
        f"--dlperf-json={project / 'results.json'}",
    )
    created.assert_outcomes(passed=2)
    results = json.loads((project / "results.json").read_text(encoding="utf-8"))
    metrics = results["cases"][0]["metrics"]
    assert metrics["throughput"]["verdict"] == "pass"
    assert metrics["throughput"]["median"] == pytest.approx(8 / 0.0021, rel=0.02)


def test_a_run_that_fails_says_what_it_printed(project, capfd):
    (project / "train.py").write_text("raise SystemExit('no data here')\n", encoding="utf-8")
    assert main(["init", "--command", "python train.py"]) == 2
    told = capfd.readouterr().err
    assert "exit code 1" in told
    assert "no data here" in told
    assert not (project / "bench_tests").exists()


@pytest.mark.parametrize(
    ("text", "launcher", "extends"),
    [
        ("from transformers import AutoModel, Trainer\n", "torchrun", "huggingface"),
        ("import torch\nimport deepspeed\n", "deepspeed", "deepspeed"),
        ("from accelerate import Accelerator\n", "accelerate launch", "accelerate"),
        ("import lightning as L\n", "python", "lightning"),
        ("import argparse, torch, lightning as L\n", "torchrun", "lightning"),
        ("import torch; import pytorch_lightning as pl\n", "torchrun", "lightning"),
        ("import torch, \\\n    lightning as L\n", "torchrun", "lightning"),
        ('"""Without\nimport lightning\n"""\nimport torch\n', "torchrun", "torchrun"),
        ("import lightning as L\nfabric = L.Fabric()\n", "torchrun", "torchrun"),
        ("import transformers\ntransformers.Trainer()\n", "torchrun", "huggingface"),
        ("import jax\n", "python", "jax"),
        ("import torch\n", "torchrun", "torchrun"),
    ],
)
def test_what_a_script_imports_says_who_prints_its_steps(project, text, launcher, extends):
    (project / "own.py").write_text(text, encoding="utf-8")
    assert main(["init", "--no-run", "--command", f"{launcher} own.py --batch_size 4"]) == 0
    system = written(project)
    assert f"\nextends: {extends}\n" in system.file.read_text(encoding="utf-8")
    assert {"own.py", "{batch_per_device}"} <= set(arguments(system))


FINETUNE = """\
import argparse
from transformers import Trainer, TrainingArguments
parser = argparse.ArgumentParser()
Trainer(args=TrainingArguments("out", per_device_train_batch_size=4, max_steps=60)).train()
"""


def test_the_one_script_of_a_known_trainer_is_taken_for_this_machine_s_devices(project, capsys):
    program("nvidia-smi", TWO_GPUS)
    (project / "data.py").write_text("import torch\nprint('__main__')\n", encoding="utf-8")
    (project / "finetune.py").write_text(FINETUNE, encoding="utf-8")
    assert main(["init"]) == 0
    system = written(project)
    assert [case.id for case in system.cases] == ["huggingface-mine-fp32-b1-1n2g"]
    assert arguments(system)[-2] == "finetune.py"
    assert (system.window.measured_steps, system.tolerance_percent) == (100, 5)
    said = capsys.readouterr().out
    assert "nothing says how finetune.py is started" in said
    assert "running it" not in said


STEPS_BY_STEPLOG = """\
import time
from pytest_dlperf.trainers import StepLog
log = StepLog(batch_per_device=4)
for step in range(60):
    time.sleep(0.002)
    log.step(loss=2.5 + step % 7 / 100)
log.end()
"""


def test_a_script_that_prints_its_steps_is_run_to_see_its_loss_and_batch(project, capfd):
    (project / "own.py").write_text(STEPS_BY_STEPLOG, encoding="utf-8")
    assert main(["init", "--command", "python own.py --batch 4"]) == 0
    said = capfd.readouterr().out
    assert "of one device, or is it that of all?" not in said
    text = written(project).file.read_text(encoding="utf-8")
    assert "loss: {sanity: finite}\n" in text


@pytest.mark.parametrize(
    ("has_torch", "cases"),
    [
        (True, ["pytorch-resnet18-fp32-b8-1n1g", "pytorch-resnet18-fp32-b8-1n2g"]),
        (False, ["host-memory-1n1g"]),
    ],
)
def test_an_empty_folder_gets_an_example_that_runs_without_a_gpu(
    project, monkeypatch, has_torch, cases
):
    monkeypatch.setattr("pytest_dlperf.command.first_suite.is_installed", lambda _: has_torch)
    (project / ".git").mkdir()
    (project / "README.md").write_text("# Mine\n", encoding="utf-8")
    assert main(["init"]) == 0
    system = written(project)
    assert [case.id for case in system.cases] == cases
    assert system.launch.devices.value == "cpu"
    # Programs beside it may halve what it gets.
    judged = [metric for metric in system.metrics if metric.name in ("throughput", "add", "others")]
    assert {one.tolerance_percent or system.tolerance_percent for one in judged} == {50}
    assert main(["check"]) == 0


@pytest.mark.parametrize(
    ("script", "command", "found"),
    [
        # Of a program that is known, only the rest is said.
        (
            "",
            (
                "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --bf16 "
                "--global-batch-size 64 --seq-length 4096 --train-iters 100 --num-layers 32"
            ),
            (
                "megatron-mine-bf16-gb64-s4096-tp2-1n8g",
                ("--global-batch-size={global_batch}",),
                "arguments: [--num-layers, '32']",
            ),
        ),
        # One whose command says no length gets that of an example.
        (
            "",
            "torchrun --nproc-per-node 8 -m torchtitan.train --lr 1",
            (
                "torchtitan-mine-fp32-b1-s8192-1n8g",
                (),
                "sequence_length: 8192  # ? nothing says it; it is that of an example",
            ),
        ),
        (
            "",
            "torchrun --nproc-per-node 8 -m litgpt pretrain pythia-1b --lr 1",
            (
                "litgpt-mine-fp32-b1-s2048-1n8g",
                (),
                "arguments: [--lr, '1']",
            ),
        ),
        # Paddle's launcher is replaced, and the script stays.
        (
            "import paddle\n",
            "python -m paddle.distributed.launch --gpus=0,1 own.py --batch-size 8",
            (
                "paddle-own-fp32-b8-1n2g",
                ("own.py", "--batch-size", "{batch_per_device}"),
                "paddle.distributed.launch",
            ),
        ),
        # A script that starts its own processes is told how many.
        (
            "import lightning as L\n",
            "python own.py --devices 2 --num_nodes=1",
            (
                "lightning-own-fp32-b1-1n2g",
                ("--devices", "{devices_per_node}", "--num_nodes={nodes}"),
                "extends: lightning",
            ),
        ),
    ],
)
def test_a_command_becomes_the_launch_of_a_case(project, capsys, script, command, found):
    case, given, written_too = found
    (project / "own.py").write_text(script, encoding="utf-8")
    assert main(["init", "--command", command]) == 0
    system = written(project)
    assert [each.id for each in system.cases] == [case]
    assert {*given} <= {*arguments(system)}
    assert written_too in system.file.read_text(encoding="utf-8")
    said = "'pretrain pythia-1b' of the command is left out" in capsys.readouterr().out
    assert said == ("litgpt" in command)


@pytest.mark.parametrize(("log", "extends"), [("timm_1n2g_b4", "timm"), ("litgpt_1n1g", "litgpt")])
def test_the_log_of_a_known_trainer_leads_to_its_system_and_is_judged_next(
    project, capsys, log, extends
):
    log = LOGS / f"{log}.log"
    assert main(["init", "--log", str(log)]) == 0
    system = written(project)
    assert system.id == f"{extends}-mine"
    text = system.file.read_text(encoding="utf-8")
    assert f"\nextends: {extends}\n" in text
    assert "format" not in text
    [case] = system.cases
    assert f"pytest bench_tests --dlperf-logs {case.id}={log}" in capsys.readouterr().out


def test_numbers_in_doubt_are_looked_at_first(project, capsys):
    log = project / "own.out"
    log.write_text("".join(f"step {n} took 0.5{n % 7} s\n" for n in range(1, 90)))
    assert main(["init", "--model", "net", "--log", str(log)]) == 0
    system = written(project)
    keys = [doubt.message.partition(" ")[0] for doubt in system.doubts]
    assert keys == ["record", "global_batch"]
    _, _, following = capsys.readouterr().out.partition("  next ")
    assert "marks with ?, and take the marks away" in following.splitlines()[0]


MEGATRON = """\
using world size: 16, data-parallel size: 4, context-parallel size: 1, \
tensor-model-parallel size: 2, pipeline-model-parallel size: 2
  params_dtype .................................... torch.bfloat16
  seq_length ...................................... 4096
"""


def test_what_the_log_says_of_its_run_becomes_the_case(pytester, project):
    """What is written is judged green at once, also where the log lacks a metric of the system."""
    lines = [
        f" [2026-08-11 10:00:{step:02}.000000] iteration {step:8}/     500 | consumed samples: "
        f"{step * 128:12} | elapsed time per iteration (ms): 1000.0 | throughput per GPU "
        "(TFLOP/s/GPU): 231.9 | learning rate: 4.0E-07 | global batch size:   128 | lm loss: "
        f"{9 - step / 10:.6E} | loss scale: 1.0 | grad norm: 6.8 |\n"
        for step in range(1, 51)
    ]
    log = project / "slurm-4711.out"
    log.write_text(MEGATRON + "".join(lines), encoding="utf-8")
    assert main(["init", "--model", "llama", "--log", str(log)]) == 0
    (case,) = written(project).cases
    assert case.id == "megatron-llama-bf16-gb128-s4096-tp2_pp2-2n8g"
    text = (project / "bench_tests/systems/megatron-llama.yaml").read_text(encoding="utf-8")
    assert "precision: bf16  # ? the log agrees with bf16, fp8" in text
    assert "topologies: ['2n8g']  # ? the log says 16 devices" in text
    assert "metrics:  # ? the log shows no peak_memory\n  peak_memory: ~\n" in text
    judged = pytester.run(
        *(sys.executable, "-m", "pytest", "-p", "no:benchmark", f"--rootdir={project}"),
        *(project / "bench_tests", f"--dlperf-logs={case.id}={log}", "--dlperf-create-baselines"),
    )
    judged.assert_outcomes(passed=2)


@pytest.mark.parametrize("ci", ["gitlab", "slurm"])
def test_a_trainer_by_name_gives_its_example_and_every_ci_has_its_file(project, ci):
    assert main(["init", "--trainer", "megatron", "--ci", ci]) == 0
    assert written(project).id == "megatron-llama3_8b"
    ours = {"bench_tests", "baselines"}
    files = [one for one in project.rglob("*") if one.is_file() and not ours & {*one.parts}]
    assert "pytest bench_tests" in files[0].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "scripts",
    [
        {"own.py": "import sys\n"},
        {"train.py": "import argparse, torch\nloss.backward()\n"},
        dict.fromkeys(("finetune.py", "pretrain.py"), FINETUNE),
        {"run.sh": "torchrun --nproc-per-node 4 train.py --batch-size=16\n"},
    ],
)
def test_without_anything_to_go_by_it_says_what_it_needs(project, capsys, scripts):
    for name, text in scripts.items():
        (project / name).write_text(text, encoding="utf-8")
    assert main(["init"]) == 2
    told = capsys.readouterr().err
    for remedy in ("--command", "--log", "--trainer", "pytest-dlperf init NEW_FOLDER"):
        assert remedy in told
    names = told.partition("one of ")[2].partition(". ")[0].split(", ")
    assert {"torchrun", "accelerate", "megatron"} <= {*names}
    assert {"fio", "host_memory", "torch_all_reduce", "vllm_bench"}.isdisjoint(names)
    assert not (project / "bench_tests").exists()


def test_a_file_of_hosts_lies_where_the_command_is_started(project, capsys):
    (project / "hosts").write_text("gpu1:8\ngpu2:8\n", encoding="utf-8")
    given = ["--command", "python train.py", "--hosts=@hosts", "--no-run"]
    assert main(["init", "new/place", *given]) == 0
    assert [str(case.topology) for case in written(project / "new/place").cases] == ["1n1g", "2n1g"]
    assert f"--dlperf-hosts @{project}/hosts" in capsys.readouterr().out


def test_hosts_and_a_ci_bring_a_cluster_and_a_job(project, capsys):
    given = ["--hosts", "gpu[01-04]:8", "--cluster", "h100", "--ci", "github", "--no-run"]
    command = "torchrun --nproc-per-node 8 train.py --global-batch 256"
    assert main(["init", "--command", command, *given]) == 0
    system = written(project)
    assert [str(case.topology) for case in system.cases] == ["1n8g", "4n8g"]
    assert {case.reference and str(case.reference.topology) for case in system.cases} <= {
        None,
        "1n8g",
    }
    nightly = (project / ".github/workflows/dlperf-nightly.yml").read_text(encoding="utf-8")
    example = (ROOT / "examples/github-nightly.yml").read_text(encoding="utf-8")
    assert nightly == example.replace("my-cluster", "h100")
    assert "DLPERF_CLUSTER: h100" in nightly
    out = capsys.readouterr().out
    assert "--dlperf-cluster h100 --dlperf-hosts 'gpu[01-04]:8'" in out
    assert main(["check"]) == 0


@pytest.mark.parametrize("name", ["../office", "", "a: b"])
def test_a_cluster_is_called_as_a_folder_can_be(project, capsys, name):
    with contextlib.suppress(SystemExit):
        assert main(["init", "--trainer", "timm", "--cluster", name]) != 0
    assert "--cluster" in capsys.readouterr().err
    assert not any(project.rglob("*.yaml"))


def test_gpus_and_slurm_are_asked_by_their_own_tools(project, capsys):
    program("sinfo", "gpu:h100:8(S:0-1)")
    (project / "train.py").write_text("import torch\n", encoding="utf-8")
    assert main(["init", "--command", "torchrun --nproc-per-node=gpu train.py"]) == 0
    assert [str(case.topology) for case in written(project).cases] == ["1n8g"]
    out = capsys.readouterr().out
    assert "salloc --nodes=1 --exclusive --gpus-per-node=8 pytest bench_tests" in out
    assert "login node" in out


def test_nothing_is_overwritten(project, capsys):
    given = ["init", "--no-run", "--command", "torchrun train.py", "--model", "own"]
    assert main(given) == 0
    file = project / "bench_tests/systems/pytorch-own.yaml"
    file.write_text("mine\n", encoding="utf-8")
    capsys.readouterr()
    assert main(given) == 0
    assert file.read_text(encoding="utf-8") == "mine\n"
    assert f"kept      {file.relative_to(project)}" in capsys.readouterr().out


def test_any_argument_stands_in_the_file_as_it_was_typed(project):
    arguments_given = ["a\nb", "it's", "\x01", "null", "- x: y"]
    command = shlex.join(["torchrun", "train.py", *arguments_given])
    assert main(["init", "--no-run", "--command", command]) == 0
    assert list(arguments(written(project))[-6:-1]) == arguments_given

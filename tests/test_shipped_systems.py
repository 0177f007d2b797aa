"""The systems that ship: each loads with its comment's example and has a row of what was tried."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from judged_logs import judged

from pytest_dlperf.config.extends import comment_of, shipped_systems
from pytest_dlperf.config.launch_keys import VariableKind
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.measurement import RunStatus

pytestmark = pytest.mark.in_process

SYSTEMS_PAGE = Path(__file__).parent.parent / "docs" / "systems.md"
DATA = Path(__file__).parent / "data"
LOGS = DATA / "logs"
SHIPPED = shipped_systems()
TEXTS = {name: file.read_text(encoding="utf-8") for name, file in SHIPPED.items()}
PROBES = [
    name
    for name, text in TEXTS.items()
    if not re.search("(?m)^(?:  format|  steps|extends):", text)
]
TRAININGS = [name for name in SHIPPED if name not in PROBES]


def system(name, tmp_path):
    """The system of its example."""
    file = tmp_path / f"{name}.yaml"
    file.write_text(comment_of(name)[1], encoding="utf-8")
    [found] = load_systems([file], BUILTIN_FORMATS).values()
    return found


def test_each_system_has_a_row_of_what_was_tried():
    page = SYSTEMS_PAGE.read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| `(\w+)` \|", page) == [*TRAININGS, *PROBES]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_user_s_file_needs_ten_lines(name, tmp_path):
    """It says what trains, and for one node and for four how."""
    found = system(name, tmp_path)
    assert comment_of(name)[1].startswith(f"extends: {name}\nmodel: ")
    assert found.is_probe == (name in PROBES)
    if not found.is_probe:
        assert {"1n8g", "4n8g"} <= {str(case.topology) for case in found.cases}
    assert found.launch is not None


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_has_at_most_twelve_lines(name):
    assert sum(not line.startswith("#") for line in TEXTS[name].splitlines()) <= 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """A log of lines that a trainer printed, and what they say of the measured steps.

    ``work`` is that of a step, in the system's unit, ``took`` the seconds of all measured steps.
    """

    log: str
    case: str
    warmup: int
    measured: int
    work: float
    took: float
    memory: float | None = None
    metrics: str = "loss: {sanity: finite}"


BF16 = "precision: bf16, sequence_length: 4096, reference: none, topologies: [1n8g]"
FP32 = "precision: fp32, reference: none"
REAL = {
    "maxtext": Real(  # trained by one process with two CPU devices, on synthetic data
        log="maxtext_1n2g.log",
        case=f"{FP32}, batch_per_device: 8, sequence_length: 128, topologies: [1n2g]", warmup=10,
        measured=10, work=16 * 128, took=4.300,
    ),
    "megatron": Real(  # NVIDIA/Megatron-LM issue 756
        log="megatron_1n8g.log", case=f"{BF16}, global_batch: 128", warmup=2, measured=1,
        work=128 * 4096, took=5.4106, memory=54250.98583984375 / 1024,
    ),
    "megatron_bridge": Real(  # NVIDIA-NeMo/Megatron-Bridge pull request 841, every tenth step
        log="megatron_bridge_1n8g.log", case=f"{BF16}, global_batch: 512", warmup=10, measured=10,
        work=512 * 4096, took=142.603, memory=12.71243603515625,
    ),
    "mlperf": Real(  # printed by mlperf-logging 4.1.68, every fifth step
        log="mllog_steps.log",
        case="precision: bf16, global_batch: 8, sequence_length: 512, topologies: [1n1g]",
        warmup=10, measured=20, work=8 * 512, took=2.040 - 1.024,
    ),
    "nanogpt": Real(  # karpathy/nanoGPT issue 110
        log="nanogpt_1n8g.log", case=f"{BF16}, batch_per_device: 12", warmup=1632, measured=3,
        work=8 * 12 * 4096, took=0.56315 + 0.56211 + 0.56280,
    ),
    "nemo": Real(  # a notebook in NVIDIA-NeMo/NeMo, examples/llm/resiliency
        log="nemo_1n8g.log", case=f"{BF16}, global_batch: 512", warmup=11, measured=4,
        work=512 * 4096, took=7.578 + 7.577 + 7.575 + 7.580,
    ),
    "nemo_automodel": Real(  # NVIDIA-NeMo/Automodel pull request 3473, samples of several lengths
        log="nemo_automodel_1n8g.log", case=f"{BF16}, global_batch: 32", warmup=13, measured=2,
        work=1, took=1 / 8094.49 + 1 / 20316.81, memory=29.31,
    ),
    "paddleformers": Real(  # a lesson that uses PaddleNLP
        log="paddlenlp_1n1g.log",
        case="precision: bf16, global_batch: 1, sequence_length: 1024, topologies: [1n1g]",
        warmup=1, measured=1, work=1024, took=0.2556, memory=12.307440280914307,
    ),
    "pytorch_imagenet": Real(  # the example of 2020 on two CPU processes
        log="pytorch_imagenet_1n2g_b4_glued.log",
        case=f"{FP32}, batch_per_device: 4, topologies: [1n2g]", warmup=20,
        measured=100, work=8, took=100 * 8 / 12.6028,
    ),
    "timm": Real(  # trained on two CPU processes; 4 steps took 4 x 0.573 s, 24 steps 24 x 0.730 s
        log="timm_1n2g_b4.log", case=f"{FP32}, batch_per_device: 4, topologies: [1n2g]", warmup=4,
        measured=20, work=8, took=24 * 0.730 - 4 * 0.573,
    ),
    "torchtitan": Real(  # two CPU processes that share a model: a step takes the tokens of one
        log="torchtitan_1n2g_tp2.log",
        case=f"{FP32}, global_batch: 2, sequence_length: 128, parallel: {{tp: 2}}, "
        "topologies: [1n2g]", warmup=4, measured=16, work=2 * 128, took=65.556 - 42.000,
    ),
    "torchvision": Real(  # fangwei123456/Spike-Element-Wise-ResNet issue 10
        log="torchvision_1n8g.log", case=f"{FP32}, batch_per_device: 32, topologies: [1n8g]",
        warmup=105, measured=3, work=8 * 32, took=2.7337 + 2.7023 + 2.6240, memory=3524,
    ),
}  # fmt: skip
SHORT = "window: {warmup_steps: 21, measured_steps: 20}\n"


def examples(suite):
    """Lay out the examples of the trainers, and all that they need; return the options."""
    systems = suite.path / "systems"
    systems.mkdir()
    given = {}
    for name in TRAININGS:
        (systems / f"{name}.yaml").write_text(comment_of(name)[1] + SHORT, encoding="utf-8")
        found = system(name, suite.path)
        for variable, said in found.launch.variables.items() if found.launch else ():
            if said.default is None:
                kind = "yaml" if variable == "config" else "py"
                file = suite.path / f"{name}.{kind}"
                file.touch()
                folder = said.kind is VariableKind.FOLDER
                given[f"{found.id}.{variable}"] = suite.path if folder else file
    return [
        *("--dlperf-systems", str(systems)),
        *("--dlperf-launcher", "local", "--dlperf-hosts", "127.1.0.[1-4]:8"),
        *(word for name, value in given.items() for word in ("--dlperf-set", f"{name}={value}")),
    ]


@pytest.mark.parametrize("name", REAL)
def test_real_lines_are_read(name, tmp_path):
    real = REAL[name]
    file = tmp_path / "own.yaml"
    file.write_text(
        f"extends: {name}\nmodel: own\nmetrics: {{{real.metrics}}}\ncases: [{{{real.case}}}]\n"
        f"window: {{warmup_steps: {real.warmup}, measured_steps: {real.measured}}}\n",
        encoding="utf-8",
    )
    run = judged(file, LOGS / real.log)
    assert run.status is RunStatus.OK, run.reason
    expected = real.work * real.measured / real.took
    assert run.metrics["throughput"] == pytest.approx(expected, rel=2e-3)
    assert run.metrics.get("peak_memory") == pytest.approx(real.memory)


@pytest.mark.end_to_end
def test_each_node_has_a_plan(suite):
    """On one node and on four, each with its own rank; the last one's to the letter."""
    result = suite.run("-k", "throughput", *examples(suite), "--dlperf-dry-run")
    assert result.ret == 0
    plans, case = defaultdict(list), ""
    for line in result.outlines:
        if re.fullmatch(r"[\w+-]+-[0-9]n[0-9]g", line):
            case = line if line.endswith("8g") else ""
        if found := re.match(r"  node ([0-9]) on 127.1.0.[0-9]+: (.*?)(?:  # .*)?$", line):
            text = found[2].replace(str(suite.path), "FOLDER").replace(sys.executable, "python")
            plans[case].append(re.sub("CUDA_VISIBLE_DEVICES=[0-7,]+ ", "", text))
    del plans[""]
    for case, commands in plans.items():
        assert len({*commands}) == int(case[-4])  # nodes
    last = {case: commands[-1] for case, commands in plans.items()}
    assert last == yaml.safe_load((DATA / "plans.yaml").read_text("utf-8"))


def test_a_layout_that_the_first_node_prints_is_compared(tmp_path):
    """The steps are in the last node's log, which says nothing of the layout."""
    file = tmp_path / "own.yaml"
    file.write_text(
        "extends: megatron\nmodel: own\nwindow: {warmup_steps: 2, measured_steps: 1}\n"
        "cases: [{precision: bf16, global_batch: 128, sequence_length: 4096, parallel: {tp: 2}, "
        "topologies: [2n8g], reference: none}]\n"
    )
    first = (
        "using world size: 16, data-parallel size: 4, context-parallel size: 1, "
        "tensor-model-parallel size: 4, pipeline-model-parallel size: 1\n"
    )
    text = (LOGS / "megatron_1n8g.log").read_text("utf-8")
    run = judged(file, first, text)
    assert run.status is RunStatus.INVALID
    assert "node 0" in run.reason
    assert "tp 4" in run.reason


@pytest.mark.parametrize("key", ["torchrun", "accelerate", "deepspeed"])
def test_a_launcher_is_named_by_its_key_in_place_of_the_command(key, tmp_path):
    """What a file starts replaces what its base starts, whichever key each says it by."""
    text = comment_of("torchrun")[1].partition("launch:")[0]
    files = {
        "own": f"{text}launch: {{{key}: [train.py, --lr=1]}}\ncases: [{{precision: fp32, "
        "batch_per_device: 1, topologies: [1n1g, 2n4g]}]\n",
    }
    files["lower"] = "extends: ./own.yaml\nmodel: lower\nlaunch: {command: [run.sh]}\n"
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content, encoding="utf-8")
    systems = load_systems([tmp_path / "own.yaml", tmp_path / "lower.yaml"], BUILTIN_FORMATS)
    own, lower = systems.values()
    one, two = (own.launch.arguments(case) for case in own.cases)
    assert one[:2] == ("{python}", "-m")
    assert two[-2:] == ("train.py", "--lr=1")
    assert any("{node_rank}" in word for word in two)
    # Accelerate refuses its options of nodes for one process.
    assert any("{node_rank}" in word for word in one) == (key != "accelerate")
    assert lower.launch.arguments(lower.cases[0]) == ("run.sh",)


def test_two_keys_of_one_file_that_start_it_are_refused(tmp_path):
    example = comment_of("torchrun")[1].partition("launch:")[0]
    text = f"{example}launch: {{torchrun: [a.py], command: [b.sh]}}\ncases:\n"
    text += "  - {precision: fp32, batch_per_device: 1, topologies: [1n1g]}\n"
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(YamlError, match="'torchrun'; one of them starts the trainer"):
        load_systems([tmp_path / "own.yaml"], BUILTIN_FORMATS)

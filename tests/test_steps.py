"""Steps printed for trainers that print none: in the script, and by ``launch.steps`` without it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.processes import LONG_S
from pythons import old_python
from trainers import DEEPSPEED_ENGINE

from pytest_dlperf import trainers
from pytest_dlperf.launch.plan import step_files
from pytest_dlperf.trainers import StepLog

STEPS = Path(str(trainers.__file__)).parent / "steps.py"
STEP = re.compile(
    r"dlperf step rank=(\d+) step=(\d+) time=\d+\.\d{6}(?: tokens=(\d+))?(?: loss=(\S+))? "
    r"peak_memory_mb=\d+\.\d"
)


def python(
    code,
    folder,
    executable=sys.executable,
    **variables,
):
    """What a script prints that lies in a folder with a copy of the file, and nothing else."""
    script = folder / "train.py"
    script.write_text(code, encoding="utf-8")
    shutil.copy(STEPS, folder / "steps.py")
    kept = ("PATH", "HOME", "LANG")
    result = subprocess.run(
        [executable, script],
        env={**{name: os.environ[name] for name in kept if name in os.environ}, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


LOOP = """\
from steps import StepLog
log = StepLog(batch_per_device=8, precision="torch.bfloat16", sequence_length=128)
for k in range(3):
    log.step(3.25 - k, tokens=1024)
log.step(float("nan"))
log.step()
log.end()
"""


@pytest.mark.parametrize("version", ["3.7", "3.8", ""])
def test_a_copy_of_the_file_prints_the_steps_of_a_loop(tmp_path, version):
    executable = old_python(version) if version else Path(sys.executable)
    if executable is None:
        pytest.skip(f"there is no Python {version} here")
    head, *steps, end = python(LOOP, tmp_path, executable=executable)
    assert head == (
        "dlperf run rank=0 world_size=1 nodes=1 devices_per_node=1 batch_per_device=8 "
        "precision=bf16 sequence_length=128"
    )
    found = [match.groups() for match in map(STEP.fullmatch, steps) if match]
    assert found == [
        ("0", "1", "1024", "3.25"),
        ("0", "2", "1024", "2.25"),
        ("0", "3", "1024", "1.25"),
        ("0", "4", None, "nan"),
        ("0", "5", None, None),
    ]
    assert end == "dlperf end rank=0"


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        (
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"},
            "rank=5 world_size=8 nodes=2 devices_per_node=4",
        ),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_SIZE": "2", "CROSS_SIZE": "2"},
            "rank=3 world_size=4 nodes=2 devices_per_node=2",
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NUM_NODES": "2",
            },
            "rank=1 world_size=4 nodes=2 devices_per_node=2",
        ),
        (
            {"SLURM_PROCID": "7", "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2"},
            "rank=7 world_size=16 nodes=2 devices_per_node=8",
        ),
        ({"RANK": "", "WORLD_SIZE": "2"}, "rank=0 world_size=1 nodes=1 devices_per_node=1"),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"},
            "rank=1 world_size=2 nodes=1 devices_per_node=2",
        ),
    ],
    ids=["torchrun", "deepspeed", "mpirun inside of srun", "srun", "none", "mpirun of one node"],
)
def test_a_rank_knows_its_place_by_what_its_launcher_sets(monkeypatch, capfd, variables, place):
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.delitem(sys.__dict__, "dlperf_steps", raising=False)
    log = StepLog()
    log.step()
    log.end()
    monkeypatch.delitem(sys.__dict__, "dlperf_steps")
    head, step, end = capfd.readouterr().out.splitlines()
    assert head == f"dlperf run {place}"
    rank = place.partition(" ")[0]
    assert step.startswith(f"dlperf step {rank} step=1 ")
    assert end == f"dlperf end {rank}"


def test_of_several_in_a_process_the_first_prints(tmp_path):
    code = (
        "from steps import StepLog\n"
        "first, second = StepLog(), StepLog()\n"
        "for k in range(2):\n"
        "    first.step(k)\n"
        "    second.step(k)\n"
        "second.end()\n"
        "first.end()\n"
    )
    _, *steps, end = python(code, tmp_path)
    assert [match and match[2] for match in map(STEP.fullmatch, steps)] == ["1", "2"]
    assert end == "dlperf end rank=0"


# What Accelerate keeps of a loop: the loader that is gone over, and whether this step is a step.
ACCUMULATED = """\
from types import SimpleNamespace
from steps import AccelerateSteps
class Optimizer:
    param_groups = [{{"params": [SimpleNamespace(dtype="torch.bfloat16")]}}]
    def step(self):
        pass
class Accelerator:
    num_processes, mixed_precision, gradient_accumulation_steps = 1, "no", {told}
    def __init__(self):
        loader = SimpleNamespace(total_batch_size=8)
        self.gradient_state = SimpleNamespace(sync_gradients=True, active_dataloader=loader)
        self._optimizers = [Optimizer()]
    def backward(self, loss):
        pass
accelerator = Accelerator()
(optimizer,) = accelerator._optimizers
log = AccelerateSteps(accelerator)
optimizer.step.__func__  # as schedulers of torch do
for count in {counts}:
    for _ in range(count):
        accelerator.backward(1.0)
    optimizer.step()
log.end()
"""


@pytest.mark.parametrize(
    ("told", "counts", "batches"),
    [
        (1, [1, 1, 1], ["8"]),
        (4, [1, 1, 1], ["8"]),
        (1, [4, 4, 4], []),
        (4, [4, 1, 4], ["32", "8"]),
        (1, [1, 2, 1], ["8"]),
    ],
    ids=["plain", "does not", "by itself", "an epoch ends", "a second loss"],
)
def test_a_batch_is_what_a_step_has_taken(tmp_path, told, counts, batches):
    """A batch that was only configured would be a throughput that nobody had."""
    lines = python(ACCUMULATED.format(told=told, counts=counts), tmp_path)
    assert re.findall(r"dlperf run .*global_batch=(\d+)", "\n".join(lines)) == batches
    assert "precision=bf16" in lines[0], "that of the weights, for nothing is mixed"


def test_a_step_of_a_smaller_batch_says_so_in_front(tmp_path):
    code = (
        "from types import SimpleNamespace\n"
        "from steps import StepLog\n"
        "log = StepLog(global_batch=16)\n"
        "for sizes in (4, 4), (4, 2), (4, 4):\n"
        "    for size in sizes:\n"
        "        log.take({'input_ids': SimpleNamespace(shape=(size, 32))})\n"
        "    log.step()\n"
    )
    head, *lines = python(code, tmp_path)
    assert "global_batch=16" in head
    assert lines.pop(1) == "dlperf run rank=0 global_batch=12"
    tokens = [match and match[3] for match in map(STEP.fullmatch, lines)]
    assert tokens == ["256", "192", "256"]


def test_the_package_has_their_names():
    assert trainers.StepLog.__module__ == "pytest_dlperf.trainers.steps"
    assert not hasattr(trainers, "OtherSteps")


# Arrays as JAX has them, which a device computes while the host goes on.
QUEUED = """\
import threading, time
from steps import StepLog
class Array:
    def __init__(self, value):
        self.value, self.done = value, threading.Event()
    def block_until_ready(self):
        assert self.done.wait(60)
    def item(self):
        assert self.done.is_set(), "this waits for the device"
        return self.value
log = StepLog()
arrays = [Array(k) for k in range(4)]
if {synchronize}:
    [array.done.set() for array in arrays]
for k in range(4):
    log.step(arrays[k])
done = []
for array in arrays:
    time.sleep(0.05)
    done.append(time.perf_counter() - log._began)
    array.done.set()
{end}
"""


@pytest.mark.parametrize("end", ["log.end()", ""])
def test_a_step_is_printed_when_the_device_has_done_it(tmp_path, end):
    """Not when the host has queued it; also of a script that does not say its end."""
    code = QUEUED.format(synchronize=False, end=end + "\nprint(*done)")
    _, *lines, last = sorted(python(code, tmp_path), key=lambda line: not line.startswith("dlperf"))
    steps = [match for match in map(STEP.fullmatch, lines) if match]
    assert [match[2] for match in steps] == ["1", "2", "3", "4"]
    assert [match[4] for match in steps] == ["0", "1", "2", "3"]
    times = [float(match[0].split("time=")[1].split()[0]) for match in steps]
    # A printed time may be late beside other load, but is rounded to a microsecond at most.
    done = [float(time) - 1e-6 for time in last.split()]
    assert all(printed >= earliest for printed, earliest in zip(times, done, strict=True))


def test_synchronized_steps_wait_for_their_own_loss(tmp_path):
    lines = python(
        QUEUED.format(synchronize=True, end="log.end()"), tmp_path, DLPERF_STEPS_SYNCHRONIZE="1"
    )[1:-1]
    assert [match and match[4] for match in map(STEP.fullmatch, lines)] == ["0", "1", "2", "3"]


# A device that does one step; the next one fails, or never comes.
BROKEN = """\
import threading
import steps
class Array:
    size = 2
    def __init__(self, wait):
        self.block_until_ready = wait
    def item(self):
        raise ValueError("these are two numbers")
def fail():
    raise RuntimeError("the device has failed")
steps._LONGEST_STEP_S = 0.2
log = steps.StepLog()
log.step(Array(bool))
{later}
"""


@pytest.mark.parametrize(
    ("later", "printed", "said"),
    [
        ("log.step(Array(threading.Event().wait))", ["1"], ""),
        ("log.step(Array(threading.Event().wait))\nlog.end()", ["1"], ""),
        ("log.step(Array(fail))\nlog.step(Array(bool))\nlog.end()", ["1"], "has failed"),
        ("log.end()\nlog.step(Array(bool))", ["1", "2"], ""),
    ],
    ids=["never comes", "never comes before the end", "fails", "goes on behind an end"],
)
def test_a_step_that_the_device_never_does_hangs_no_exit(tmp_path, later, printed, said):
    """It is not printed, nor is what stands behind it; and no loss of several numbers is."""
    (tmp_path / "loop.py").write_text(BROKEN.format(later=later), encoding="utf-8")
    shutil.copy(STEPS, tmp_path)
    command = [sys.executable, "loop.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=LONG_S
    )
    steps = [match for match in map(STEP.fullmatch, done.stdout.splitlines()) if match]
    assert [(match[2], match[4]) for match in steps] == [(number, None) for number in printed]
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


def test_jax_has_to_be_told_the_loss(tmp_path):
    """Nothing else tells when a step is done."""
    jax = "types.SimpleNamespace(process_index=int, device_count=lambda: 1, local_devices=list)"
    code = f"import sys, types\nsys.modules['jax'] = {jax}\nfrom steps import StepLog\n"
    (tmp_path / "loop.py").write_text(code + "StepLog().step()\n", encoding="utf-8")
    shutil.copy(STEPS, tmp_path)
    done = subprocess.run(
        [sys.executable, "loop.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "pass the loss of each step: JAX returns before a step is done" in done.stderr


# What of torch is asked for an accelerator, which reaches an event when it is waited for.
ACCELERATOR = """\
import sys, threading, types
second = types.SimpleNamespace(type="cuda", index=1)
chosen = threading.local()  # by each thread, as CUDA has it
class Event:
    def __init__(self, blocking):
        assert blocking
        self.stream = None
    def record(self, stream):
        self.stream = stream
    def synchronize(self):
        assert (self.stream, chosen.device) == (("stream", second), second)
class Tensor:
    def __init__(self, value, kind):
        self.value = value
        self.device = second if kind == "cuda" else types.SimpleNamespace(type=kind)
    def numel(self):
        return 1
    def detach(self):
        return self
    def to(self, place, non_blocking):
        assert non_blocking
        return Tensor(self.value, place)
    def item(self):
        assert self.device.type == "cpu", "this waits for the device"
        return self.value
cuda = types.SimpleNamespace(
    Event=Event,
    is_initialized=lambda: True,
    current_device=lambda: 0,
    current_stream=lambda device: ("stream", device),
    set_device=lambda device: setattr(chosen, "device", device),
    memory_stats_as_nested_dict=lambda device: {
        "allocated_bytes": {"all": {"peak": 1234567890 if device is second else 0}}
    },
)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
from steps import StepLog
log = StepLog()
for k in range(3):
    log.step(Tensor(k / 2, "cuda"))
log.step()
log.value(4, 1.5)
log.end()
"""


def test_a_loss_on_an_accelerator_is_copied_behind_its_computation(tmp_path):
    """Events, memory and the thread that waits are its device's, not the first one's."""
    _, *steps, value, end = python(ACCELERATOR, tmp_path)
    assert [match and match[4] for match in map(STEP.fullmatch, steps)] == ["0", "0.5", "1", None]
    assert all(line.endswith("peak_memory_mb=1234.6") for line in steps)
    assert (value, end) == ("dlperf value rank=0 step=4 loss=1.5", "dlperf end rank=0")


# ------------------------------------------------------------------ a system without a change


TRAINER = """\
import os, pathlib, subprocess, sys, time
import marked  # by the user's own PYTHONPATH
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
here = pathlib.Path(__file__).parent
subprocess.run([sys.executable, "-c", "print('a program that does not train')"])
from deepspeed.runtime.engine import DeepSpeedEngine
if "idle" not in sys.argv:
    engine = DeepSpeedEngine(ranks)
    for k in range(int(sys.argv[1])):
        time.sleep(0.02)
        # As in a training: no step without the others.
        (here / f"{k}.{rank}").touch()
        while len(list(here.glob(f"{k}.*"))) < ranks:
            time.sleep(0.001)
        engine.backward(9.0 - k / 2)
        engine.step()
"""
SYSTEM = """\
framework: deepspeed
model: tiny
unit: samples/s
log: {{name: tiny, format: {log}}}
window: {{warmup_steps: 2, measured_steps: 8}}
repeats: 1
tolerance_percent: 75
metrics:
  loss:
    record: 'dlperf [a-z]+ rank=[0-9]+ step=(?P<step>[0-9]+) .*loss=(?P<value>[-+.0-9a-z]+)'
    node: each
    sanity: falls
launch:
  devices: cpu
  steps: deepspeed
  command: ["{{python}}", {options}, {trainer}, "{{steps}}", {arguments}]
  environment:
    PYTHONPATH: {own}
    RANK: "{{node_rank}}"
    WORLD_SIZE: "{{nodes}}"
    LOCAL_WORLD_SIZE: "1"
  time_limit_s: 60
cases:
  - precision: fp32
    batch_per_device: {batch}
    topologies: [1n1g, 2n1g]
    reference: none
"""


@pytest.fixture
def own(suite):
    """A folder of the user's ``PYTHONPATH``, with a ``sitecustomize`` and a trainer's module."""
    folder = suite.path / "own"
    package = folder / "deepspeed" / "runtime"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    (package / "engine.py").write_text(DEEPSPEED_ENGINE, encoding="utf-8")
    (folder / "marked.py").touch()
    (folder / "sitecustomize.py").write_text("print('of the user')\n", encoding="utf-8")
    (suite.path / "train.py").write_text(TRAINER, encoding="utf-8")
    return folder


def declare(  # noqa: PLR0913 - what differs between tests, by name
    suite,
    own,
    *,
    log="dlperf",
    options="-u",
    arguments="train",
    batch=4,
):
    trainer = suite.path / "train.py"
    text = SYSTEM.format(
        log=log, options=options, trainer=trainer, arguments=arguments, own=own, batch=batch
    )
    suite.system_file(text)


def test_a_trainer_is_measured_whose_script_knows_nothing_of_it(suite, own):
    declare(suite, own)
    night = suite.path / "night"
    result, results = suite.judge(
        *("-k", "deepspeed and tiny and 2n1g", "--dlperf-create-baselines"),
        *("--dlperf-run-dir", night),
        cluster="local",
    )
    assert result.ret == 0
    (case,) = results["cases"]
    # Two nodes of 4 samples, 20 ms and what a busy machine adds.
    assert 10 < case["metrics"]["throughput"]["median"] < 400
    assert case["metrics"]["loss"]["median"] == pytest.approx(9.0 - 5.5 / 2)
    folder = night / "deepspeed-tiny" / "2n1g"
    for rank, log in enumerate(("tiny_b4_fp32_1.log", "tiny_b4_fp32_1/node1.log")):
        text = (folder / log).read_text(encoding="utf-8")
        assert f"dlperf run rank={rank} world_size=2 nodes=2 devices_per_node=1" in text
        assert text.count("a program that does not train") == 1
        # Both programs have run it, as they do without us.
        assert text.count("of the user") == 2


def test_what_the_trainer_knows_of_its_run_is_held_against_the_case(suite, own):
    declare(suite, own, batch=8)
    result, results = suite.judge(
        *("-k", "deepspeed and tiny and 1n1g and throughput", "--dlperf-create-baselines"),
        cluster="local",
    )
    assert result.ret == 1
    reason = results["cases"][0]["measurement"]["runs"][0]["reason"]
    assert "global_batch" in reason
    assert "4" in reason
    assert "8" in reason


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"options": "-I"}, "no Python of the run has imported deepspeed's trainer"),
        ({"arguments": "idle"}, "found deepspeed.runtime.engine, which did not train"),
        ({"log": "dllogger"}, "they were printed, and are read with 'log: {format: dlperf}'"),
    ],
    ids=["isolated", "idle", "another format"],
)
def test_where_no_step_is_printed_the_reason_says_how_far_it_came(suite, own, changes, told):
    if "options" in changes:
        (suite.path / "train.py").write_text("print('nothing of note')\n", encoding="utf-8")
    declare(suite, own, **changes)
    _, results = suite.judge(
        *("-k", "deepspeed and tiny and 1n1g and throughput", "--dlperf-create-baselines"),
        cluster="local",
    )
    run = results["cases"][0]["measurement"]["runs"][0]
    assert run["status"] == "invalid"
    assert "launch.steps" in run["reason"]
    assert told in run["reason"]


def test_a_trainer_that_has_changed_trains_on_and_the_log_says_what_was_not_found(
    tmp_path,
):
    for name, text in step_files().items():
        (tmp_path / name).write_text(text, encoding="ascii")
    module = tmp_path / "deepspeed" / "runtime"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module.parent / "__init__.py").touch()
    (module / "engine.py").write_text("class Engine: pass\n", encoding="utf-8")
    code = "import deepspeed.runtime.engine\nprint('trains')\n"
    lines = python(code, tmp_path, PYTHONPATH=str(tmp_path), DLPERF_STEPS="deepspeed")
    assert lines[0].startswith("dlperf steps of deepspeed cannot be printed: AttributeError(")
    assert "DeepSpeedEngine" in lines[0]
    assert lines[1] == "trains"


def test_an_unknown_trainer_is_a_mistake_of_the_file(suite, own):
    declare(suite, own)
    file = suite.path / "bench_tests" / "systems" / "own.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("steps: deepspeed", "steps: deepsped"), encoding="utf-8")
    said = suite.refused()
    assert "launch.steps" in said
    assert "huggingface" in said
    assert "did you mean 'deepspeed'?" in said

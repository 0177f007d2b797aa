"""What a log says of its run counts wherever it stands, and only where the case says it too."""

from pathlib import Path

import log_makers as make
import pytest
from msgspec.structs import replace

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window

DATA = Path(__file__).parent / "data" / "logs"
SHORT = Window(warmup_steps=10, measured_steps=40)
CORES = "***** Number of cores used :  {}\n"


def real(  # noqa: PLR0913 - a log and everything that it is judged by
    tmp_path,
    log,
    of,
    *,
    estimator=Estimator.STEADY,
    options=frozenset(),
    change=(b"", b""),
):
    """Measure a real log, or what it would be with one change, as that of a case."""
    name = next(name for name in BUILTIN_FORMATS if log.startswith(name))
    content = (DATA / log).read_bytes()
    assert change[0] in content
    return make.measured(
        tmp_path,
        content.replace(*change),
        replace(BUILTIN_FORMATS[name], options=options),
        of=Case.from_id(of),
        window=make.PLSC_WINDOW if name == "plsc" else SHORT,
        estimator=estimator,
    )


def said(run):
    """Give what a log is refused for, without the case."""
    if run.status is RunStatus.OK:
        return None
    return run.reason.removeprefix("the log says ").partition("; the case")[0]


@pytest.mark.parametrize("estimator", Estimator)
@pytest.mark.parametrize("noise", [0, 100, 40_000])
def test_a_fact_at_the_end_of_the_log(tmp_path, estimator, noise):
    more = "node1:1:1 [0] NCCL INFO Launch mode Parallel, and a good deal more text\n" * noise
    log = make.tf_models_bert([0.5] * 150) + more + CORES.format(1)
    for buffer_size in (64, 1 << 18):
        run = make.measured(
            tmp_path,
            log,
            "tf_models_bert",
            of=make.case("4n8g"),
            estimator=estimator,
            buffer_size=buffer_size,
        )
        assert said(run) == "Number of cores used 1"
    sound = make.measured(tmp_path, log, "tf_models_bert", estimator=estimator)
    assert sound.metrics["throughput"] == 256


def test_the_real_log_of_one_device_is_none_of_32(tmp_path):
    log = "tf_models_bert_1n1g_b8.log"
    for estimator in Estimator:
        run = real(tmp_path, log, "f-m-fp32-b8-4n8g", estimator=estimator)
        assert said(run) == "Number of cores used 1"
        assert run.reason.endswith("has 32 (line 159)")
        assert real(tmp_path, log, "f-m-fp32-b8-1n1g", estimator=estimator).reason is None


def test_a_fact_between_steps(tmp_path):
    lines = make.tf_models_bert([0.5] * 150).splitlines(keepends=True)
    lines.insert(60, CORES.format(1))
    run = make.measured(tmp_path, "".join(lines), "tf_models_bert", of=make.case("4n8g"))
    assert said(run) == "Number of cores used 1"


def test_what_a_later_program_says_is_not_of_the_run(tmp_path):
    """An evaluation prints its own arguments behind the training's."""
    header = make.paddle_resnet_header(batch_per_node=128, trainers=1)
    evaluation = make.paddle_resnet_header(batch_per_node=16, trainers=1)
    log = header + make.paddle_resnet([0.5] * 150)
    assert said(make.measured(tmp_path, log + evaluation, "paddle_resnet")) is None
    alone = make.paddle_resnet([0.5] * 150) + evaluation
    assert said(make.measured(tmp_path, alone, "paddle_resnet")) == "batch_size (of a node) 16"


def test_a_header_may_be_long(tmp_path):
    noise = "node1:1:1 [0] NCCL INFO Launch mode Parallel, and a good deal more text\n" * 250_000
    assert len(noise) > 17 * 1024 * 1024
    log = noise + make.dllogger_header(batch=64, world_size=1) + make.dllogger([0.5] * 150)
    assert said(make.measured(tmp_path, log, "dllogger")) == "batch_size 64"


@pytest.mark.parametrize(
    ("fact", "of", "agreeing", "other"),
    [
        ("global_batch", "f-m-fp32-gb2048-1n2g", ["2048", "2,048", "2048.0"], ["204", "2049", "x"]),
        ("precision", "f-m-bf16-b8-1n2g", ["bf16", "BF16", "torch.bfloat16"], ["fp16", "float32"]),
    ],
)
def test_spellings_of_values(tmp_path, fact, of, agreeing, other):
    mine = custom_format(
        "mine",
        record="step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s",
        facts={fact: r"^it is (\S+)"},
    )
    steps = "".join(f"step {step} took 0.5 s\n" for step in range(1, 60))
    for text in (*agreeing, *other):
        log = f"it is {text}\n{steps}"
        run = make.measured(tmp_path, log, mine, of=Case.from_id(of), window=SHORT)
        assert said(run) == (None if text in agreeing else f"{fact} {text}")


@pytest.mark.parametrize(
    ("log", "of", "expected"),
    [
        ("dllogger_1n1g_b128.log", "f-m-fp32-b128-1n1g", None),
        ("dllogger_1n1g_b128.log", "f-m-tf32-b128-1n1g", None),
        ("dllogger_1n1g_b128.log", "f-m-bf16-b128-1n1g", "amp False"),
        ("dllogger_1n1g_b128.log", "f-m-int8-b128-1n1g", None),
        ("dllogger_1n1g_b128.log", "f-m-amp-b128-1n1g", "amp False"),
        ("dllogger_1n1g_b128.log", "f-m-fp16-b128-1n1g", "amp False"),
        ("dllogger_1n8g_b128.log", "f-m-amp-b128-1n8g", None),
        ("dllogger_1n8g_b128.log", "f-m-fp16-b128-1n8g", None),
        ("dllogger_1n8g_b128.log", "f-m-fp32-b128-1n8g", "amp True"),
        ("dllogger_1n8g_b128.log", "f-m-bf16-b128-1n8g", "amp True"),
        ("paddle_resnet_1n1g_b8.log", "f-m-bf16-b8-1n1g", "use_fp16 False"),
        ("paddle_resnet_1n1g_b8.log", "f-m-fp32-b8-1n1g", None),
        ("paddle_resnet_1n1g_b8.log", "f-m-fp16-b8-1n1g", "use_fp16 False"),
        ("paddle_resnet_1n1g_b8.log", "f-m-amp-b8-1n1g", "use_fp16 False"),
        ("paddle_resnet_1n1g_b8.log", "f-m-fp32-b8-dali-1n1g", "use_dali False"),
    ],
)
@pytest.mark.parametrize("estimator", Estimator)
def test_the_precision_and_the_options_of_real_logs(tmp_path, log, of, expected, estimator):
    assert said(real(tmp_path, log, of, estimator=estimator)) == expected


@pytest.mark.parametrize(
    ("change", "option", "missing", "there"),
    [
        ((b" use_dali : False", b" use_dali : 1"), "dali", "use_dali 1", None),
        ((b" use_dali : False", b" use_dali : 0"), "dali", None, "use_dali 0"),
    ],
)
def test_options_count_where_a_case_of_the_system_has_them(
    tmp_path, change, option, missing, there
):
    log = "paddle_resnet_1n1g_b8.log"
    plain, with_option = "f-m-fp32-b8-1n1g", f"f-m-fp32-b8-{option}-1n1g"
    options = frozenset({option})
    assert said(real(tmp_path, log, plain, change=change, options=options)) == missing
    assert said(real(tmp_path, log, with_option, change=change, options=options)) == there
    # Where no case is told apart by it, it may be as it likes.
    assert said(real(tmp_path, log, plain, change=change)) is None


MIXED = "INFO:tensorflow:Mixed precision compatibility check (mixed_float16): OK\n"
COMPILED = (
    "2020-11-20 08:32:19.893310: I tensorflow/compiler/jit/xla_compilation_cache.cc:241] Compiled "
    "cluster using XLA!  This line is logged at most once for the lifetime of the process.\n"
)


@pytest.mark.parametrize(
    ("line", "of", "expected"),
    [
        (MIXED, "f-m-fp32-b128-1n1g", "mixed precision mixed_float16"),
        (MIXED, "f-m-fp16-b128-1n1g", None),
        (COMPILED, "f-m-fp32-b128-1n1g", "that it uses XLA"),
        (COMPILED, "f-m-fp32-b128-xla-1n1g", None),
        ("", "f-m-fp16-b128-xla-1n1g", None),
    ],
)
def test_what_tensorflow_says_by_itself(tmp_path, line, of, expected):
    run = make.measured(
        tmp_path,
        line + make.tf_models_bert([0.5] * 150),
        replace(BUILTIN_FORMATS["tf_models_bert"], options=frozenset({"xla"})),
        of=Case.from_id(of),
    )
    assert said(run) == expected


SET_BATCH = "INFO 2026-11-20 08:30:45,235 entry.py:319] Set train batch size to {}.\n"


@pytest.mark.parametrize(
    ("default", "then", "of", "expected"),
    [
        (128, [], 128, None),
        (128, [], 64, "train_batch_size 128"),
        (128, [64], 64, None),
        (128, [64], 128, "Set train batch size to 64"),
        (64, [128], 128, None),
        (64, [128], 64, "Set train batch size to 128"),
    ],
)
def test_the_batch_that_a_program_sets_counts_before_the_default(
    tmp_path, default, then, of, expected
):
    header = make.plsc_header(batch=default, world_size=4)
    header += "".join(map(SET_BATCH.format, then))
    log = header * 4 + make.plsc([[5000.0] * 17] * 4)
    for buffer_size in (64, 1 << 18):
        run = make.measured(
            tmp_path,
            log,
            "plsc",
            of=make.case("1n4g", batch=of),
            window=make.PLSC_WINDOW,
            buffer_size=buffer_size,
        )
        assert said(run) == expected


@pytest.mark.parametrize(
    ("of", "printed", "expected"),
    [
        ("paddle-arcface_r50-fp32-b128-1n4g", b"dist_arcface", None),
        ("paddle-arcface_r50-fp32-b128-1n4g", b"arcface", "Set loss_type to arcface"),
        ("paddle-arcface_r50-fp32-b128-1n4g", b"softmax", "Set loss_type to softmax"),
        ("paddle-r50-fp32-b128-1n4g", b"softmax", None),
    ],
)
def test_the_loss_that_a_program_sets(tmp_path, of, printed, expected):
    change = (b"Set loss_type to dist_arcface.", b"Set loss_type to " + printed + b".")
    assert said(real(tmp_path, "plsc_1n4g_b128.log", of, change=change)) == expected


@pytest.mark.parametrize("log", ["dllogger_1n1g_b128.log", "dllogger_1n8g_b128.log"])
def test_a_trainer_that_dies_before_its_first_step_is_no_other(tmp_path, log):
    text = (DATA / log).read_text(encoding="utf-8")
    header = text.partition(" - Epoch: ")[0].rpartition("DLL ")[0]
    topology = log.split("_")[1]
    precision = "fp32" if topology == "1n1g" else "amp"
    died = header + "Traceback (most recent call last):\nRuntimeError: CUDA out of memory.\n"
    of = make.case(topology, precision=precision)
    run = make.measured(tmp_path, died, "dllogger", of=of)
    assert run.reason.startswith("the log holds no step of format dllogger; 'pytest-dlperf read ")
    # What it says of its run is told, where it is another's.
    run = make.measured(
        tmp_path, died, "dllogger", of=make.case(topology, precision="fp16", batch=8)
    )
    assert said(run) in {"batch_size 128", "amp False"}
    run = make.measured(tmp_path, died, "paddle_resnet")
    assert run.reason is not None
    assert "a log of NVIDIA's PyTorch image classification" in run.reason

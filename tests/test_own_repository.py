"""Trainers of today in a repository of one's own: measured, judged, and caught when slower."""

import pytest
from repositories import OwnRepository, Training

pytestmark = [pytest.mark.trainers, pytest.mark.usefixtures("own_environment")]

HUGGINGFACE = Training(
    system="huggingface",
    arguments=(
        "--max_steps={steps}",
        "--per_device_train_batch_size={batch_per_device}",
        "--learning_rate=0.01",
        "--output_dir={scratch_directory}",
        "--save_strategy=no",
        "--report_to=none",
        "--use_cpu",
    ),
    unit="tokens/s",
    work=32,
)
LOOPS = (
    Training(
        system="accelerate",
        arguments=("--steps={steps}", "--batch={batch_per_device}"),
        environment=(("ACCELERATE_USE_CPU", "true"),),
    ),
    Training(
        system="deepspeed",
        arguments=("--steps={steps}", "--batch={batch_per_device}"),
    ),
    Training(
        system="lightning",
        arguments=(
            *("--steps={steps}", "--batch={batch_per_device}"),
            *("--devices={devices_per_node}", "--nodes={nodes}"),
        ),
    ),
    Training(
        system="jax",
        arguments=("--steps={steps}", "--batch={batch_per_device}"),
        environment=(
            ("JAX_PLATFORMS", "cpu"),
            # A node has one process.
            ("XLA_FLAGS", "--xla_force_host_platform_device_count={devices_per_node}"),
        ),
    ),
)


def verdicts(metrics):
    return {name: metrics[name]["verdict"] for name in ("throughput", "peak_memory", "loss")}


def record(repository, training):
    """Train on one process, on two, and on two nodes of one; record what they reach."""
    ret, recorded = repository.judge("--dlperf-create-baselines")
    assert ret == 0
    assert list(recorded) == ["1n1g", "1n2g", "2n1g"]
    for metrics in recorded.values():
        assert set(verdicts(metrics).values()) == {"pass"}
        # PyTorch alone takes more than 100 MB.
        assert 100 < metrics["peak_memory"]["median"] < 10_000
    one = recorded["1n1g"]["throughput"]["median"]
    # What the script sleeps bounds the speed of a device, and so that of two; under load, the first
    # stamp of a window may come late.
    fastest = 1.25 * training.work / 0.02
    assert fastest / 20 < one < fastest
    for topology in ("1n2g", "2n1g"):
        assert one < recorded[topology]["throughput"]["median"] < 2 * fastest
        assert recorded[topology]["speedup"]["verdict"] == "pass"


@pytest.mark.minutes(1)
@pytest.mark.parametrize("training", LOOPS, ids=lambda training: training.system)
def test_a_loop_of_ones_own_is_measured(pytester, training):
    record(OwnRepository(pytester, training), training)


@pytest.mark.minutes(1)
def test_a_trainer_is_measured_and_a_slower_loader_of_its_data_caught(
    pytester,
):
    repository = OwnRepository(pytester, HUGGINGFACE)
    record(repository, HUGGINGFACE)

    slower = ("--dlperf-set", "huggingface-tiny.env.SECONDS_PER_SAMPLE=0.2")
    ret, judged = repository.judge("-k", "1n1g", *slower)
    assert ret == 1
    assert verdicts(judged["1n1g"]) == {
        "throughput": "regressed",
        "peak_memory": "pass",
        "loss": "pass",
    }

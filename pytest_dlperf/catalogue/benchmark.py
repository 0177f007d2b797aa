"""Trainers of the original benchmark: those of its other systems, and the shipped formats' own."""

from __future__ import annotations

from typing import Final

from pytest_dlperf.catalogue.trainer import TEXT, VALUE, Number, Reading, Trainer
from pytest_dlperf.model.timing import RateScope, Timing

_DLL: Final = r"DLL (?P<timestamp>[0-9-]+ [0-9:.]+) - "


def _speed(scope: RateScope) -> tuple[Reading, ...]:
    return (Reading(Timing.SAMPLES_PER_SECOND, scope=scope),)


def _rate(pattern: bytes, scope: RateScope) -> Number:
    """Name a speed in samples per second, which is of all devices or of a part of them."""
    of = {RateScope.GLOBAL: "all devices", RateScope.RANK: "one rank"}
    return Number(
        pattern=pattern,
        meaning=f"samples per second of {of[scope]}",
        instead=f"the group samples_per_second with 'rate_scope: {scope.value}'",
        readings=_speed(scope),
    )


_SHIPPED: Final = (
    Trainer(
        name="NVIDIA's PyTorch image classification",
        literals=(b" Iteration: ",),
        pattern=rb"Iteration: N {1,9}train\.",
        format="dllogger",
        numbers=(
            Number(
                pattern=rb"train\.compute_ips : " + VALUE,
                meaning="a speed without the wait for data",
                instead="train.total_ips, or the time stamp",
            ),
        ),
    ),
    Trainer(
        name="the PyTorch example for ImageNet",
        literals=(b"\tTime ",),
        pattern=rb"Epoch: \[N\]\[ {0,15}N/ {0,15}N\][ \t]{1,9}Time ",
        format="pytorch_imagenet",
        system="pytorch_imagenet",
        numbers=(
            Number(
                pattern=rb"Time {1,9}[0-9.]{1,12} \( {0,9}([0-9.]{1,12})\)",
                meaning="a mean since the epoch's start",
                instead="the number in front of the brackets",
            ),
        ),
    ),
    Trainer(
        name="PLSC 1.x",
        literals=(b" qps:",),
        pattern=rb"Pass:N batch:N " + TEXT + rb" qps:",
        format="plsc",
        numbers=(
            Number(
                pattern=rb" qps:" + VALUE,
                meaning="a speed without the wait for data",
                instead="the time stamp in front of the line",
            ),
        ),
    ),
)

_PADDLE: Final = (
    Trainer(
        name="PaddleCV's later print format (batch_cost, ips)",
        literals=(b"batch_cost ",),
        pattern=rb"Pass N, train batch N\] " + TEXT + rb"batch_cost ",
        own_format={
            "record": r"Pass (?P<epoch>[0-9]+), train batch (?P<step>[0-9]+)\] .*batch_cost "
            "(?P<seconds>[0-9.]+) sec",
            "first_step": 0,
        },
    ),
    Trainer(
        name="PaddleCV of 2019 (trainbatch)",
        literals=(b", trainbatch ",),
        pattern=rb"Pass N, trainbatch [0-9]",
        own_format={
            "record": r"Pass (?P<epoch>[0-9]+), trainbatch (?P<step>[0-9]+), .*time "
            "(?P<seconds>[0-9.]+) sec",
            "first_step": 0,
        },
    ),
    Trainer(
        name="PLSC 2.x",
        literals=(b" imgs/sec",),
        pattern=rb"Training: [0-9]{4}-" + TEXT + rb"throughput: [0-9.]{1,20} imgs/sec",
        own_format={
            "record": "Training: (?P<timestamp>[0-9-]+ [0-9:,]+) - loss "
            ".* step: (?P<step>[0-9]+), ",
        },
    ),
    Trainer(
        name="PaddleClas",
        literals=(b"elapse_avg: ", b"elapse: ", b"batch_cost: "),
        pattern=rb"elapse_avg: ?[0-9]|elapse: ?[0-9.]{1,20} ?s|batch_cost: ?[0-9]",
        numbers=(
            Number(
                pattern=rb"elapse_avg: ?" + VALUE,
                meaning="a mean since the start",
                instead="elapse, or the time stamp",
            ),
        ),
    ),
    Trainer(
        name="PaddleNLP BERT",
        literals=(b"progress: ",),
        pattern=rb"progress: N/N, step: N, " + TEXT + rb"speed: ",
        numbers=(
            Number(
                pattern=rb"speed: " + VALUE + rb" steps/s",
                meaning="steps per second times the number of nodes",
                instead="no time at all: the step's arrival is measured then",
                single_node_is_fine=True,
            ),
        ),
        own_format={
            "record": "progress: .* step: (?P<step>[0-9]+), .* speed: "
            "(?P<steps_per_second>[0-9.]+) steps/s",
        },
    ),
)

_NVIDIA: Final = (
    Trainer(
        name="NVIDIA's PyTorch BERT (Training Iteration)",
        literals=(b" Training Iteration: ",),
        pattern=rb"Training Epoch: N Training Iteration: [0-9]",
        own_format={
            "record": _DLL + "Training Epoch: [0-9]+ Training Iteration: (?P<step>[0-9]+) "
        },
    ),
    Trainer(
        name="NVIDIA's TensorFlow ResNet-50",
        literals=(b"imgs_per_sec : ", b"total_ips : "),
        pattern=rb"DLL [0-9]{4}-[^\n\r\0]{0,60} - \(N, N\) (?:imgs_per_sec|total_ips) : ",
        own_format={"record": _DLL + r"\([0-9]+, (?P<step>[0-9]+)\) "},
        advice="its first 20 steps are not printed",
    ),
    Trainer(
        name="NVIDIA's TensorFlow BERT",
        literals=(b"throughput_train : ",),
        pattern=rb"throughput_train : ",
        numbers=(_rate(rb"throughput_train : " + VALUE, RateScope.GLOBAL),),
        own_format={"record": _DLL + "Iteration: (?P<step>[0-9]+) .*throughput_train : "},
    ),
    Trainer(
        name="NVIDIA's MXNet ResNet-50 (dllogger)",
        literals=(b" train.ips : ",),
        pattern=rb"DLL [0-9]{4}-[^\n\r\0]{0,300} train\.ips : ",
        numbers=(_rate(rb" train\.ips : " + VALUE, RateScope.GLOBAL),),
        own_format={
            "record": r"Epoch: (?P<epoch>[0-9]+) Iteration: (?P<step>[0-9]+) .* train\.ips : "
            "(?P<samples_per_second>[0-9.]+) ",
            "first_step": 0,
            "ranks": "local",
        },
        advice="where one process alone prints, leave out 'ranks: local'",
    ),
    Trainer(
        name="NVIDIA's MXNet ResNet-50",
        literals=(b"\tSpeed: ",),
        pattern=rb"Epoch\[N\] Batch \[N-N\]\tSpeed: [^\n\r\0\t]{0,60}\tLR:",
        numbers=(_rate(rb"\tSpeed: " + VALUE, RateScope.GLOBAL),),
        own_format={
            "record": r"Epoch\[(?P<epoch>[0-9]+)\] Batch \[[0-9]+-(?P<step>[0-9]+)\]\tSpeed: "
            "(?P<samples_per_second>[0-9.]+) samples/sec",
            "first_step": 0,
            "ranks": "local",
        },
    ),
)

_MXNET: Final = (
    Trainer(
        name="insightface with MXNet (Speedometer)",
        literals=(b"\tSpeed: ",),
        pattern=rb"Epoch\[N\] Batch \[N-N\]\tSpeed: ",
        numbers=(
            Number(
                pattern=rb"\tSpeed: " + VALUE,
                meaning="samples per second of one process",
                instead="the group samples_per_second with 'rate_scope: node', or 'rank' where "
                "each device has a process",
                readings=(*_speed(RateScope.NODE), *_speed(RateScope.RANK)),
            ),
        ),
        own_format={
            "record": r"Epoch\[(?P<epoch>[0-9]+)\] Batch \[[0-9]+-(?P<step>[0-9]+)\]\tSpeed: "
            "(?P<samples_per_second>[0-9.]+) samples/sec",
            "first_step": 0,
            "rate_scope": "node",
        },
    ),
    Trainer(
        name="GluonCV with MXNet",
        literals=(b"\tSpeed: ",),
        pattern=rb"Epoch\[N\] ?Batch ?\[N\]\tSpeed: ",
        numbers=(_rate(rb"\tSpeed: " + VALUE, RateScope.GLOBAL),),
        own_format={
            "record": r"Epoch\[(?P<epoch>[0-9]+)\] ?Batch ?\[(?P<step>[0-9]+)\]\tSpeed: "
            "(?P<samples_per_second>[0-9.]+) samples/sec",
            "first_step": 0,
        },
    ),
    Trainer(
        name="partial_fc with MXNet",
        literals=(b" it/sec Total:",),
        pattern=rb"Iter:N Rank:[^\n\r\0]{0,60} it/sec Total:",
        numbers=(
            _rate(rb"Rank:" + VALUE + rb" it/sec", RateScope.RANK),
            _rate(rb"Total:" + VALUE + rb" it/sec", RateScope.GLOBAL),
        ),
        own_format={
            "record": "Iter:(?P<step>[0-9]+) Rank:.* it/sec Total:(?P<samples_per_second>[0-9.]+) ",
        },
    ),
    Trainer(
        name="GluonNLP BERT with MXNet",
        literals=(b"\tmlm_loss=",),
        pattern=rb"\[step N\]\tmlm_loss=",
        numbers=(
            Number(
                pattern=rb"\tthroughput=([0-9.]{1,20}K?) tks/s",
                meaning="tokens per second of one rank",
                instead="the group tokens_per_second with 'rate_scope: rank'",
                readings=(Reading(Timing.TOKENS_PER_SECOND, scope=RateScope.RANK),),
            ),
            Number(
                pattern=rb" time=" + VALUE,
                meaning="the time of all steps since the last line",
                instead="latency as milliseconds",
                one_step_is_fine=True,
            ),
        ),
        own_format={
            "record": r"\[step (?P<step>[0-9]+)\]\tmlm_loss=.* latency="
            "(?P<milliseconds>[0-9.]+) ms",
            "covers": "since_last",
            "ranks": "local",
        },
    ),
)

_FURTHER: Final = (
    Trainer(
        name="TensorFlow 2 with Keras's TimeHistory",
        literals=(b"TimeHistory: ",),
        pattern=rb"TimeHistory: [0-9.]{1,20} seconds, ",
        numbers=(
            Number(
                pattern=rb"TimeHistory: " + VALUE + rb" seconds",
                meaning="the time of all steps between the two that it names",
                instead="the examples per second behind it",
                one_step_is_fine=True,
            ),
            _rate(rb" seconds, " + VALUE + rb" examples/second", RateScope.GLOBAL),
        ),
        own_format={
            "record": "TimeHistory: [0-9.]+ seconds, (?P<samples_per_second>[0-9.]+) "
            "examples/second between steps [0-9]+ and (?P<step>[0-9]+)",
        },
    ),
    Trainer(
        name="MindSpore",
        literals=(b"epoch: ", b"per step time: "),
        pattern=(
            rb"epoch: N,? (?:current epoch percent|step: N, (?:loss is|outputs are))"
            rb"|per step time: [0-9.]{1,20} ms"
        ),
        numbers=(
            Number(
                # With one step to a sink, the two are the same.
                pattern=rb"epoch time: ([0-9.]{1,20}) ms, per step time: (?!\1 )",
                meaning="the time of an epoch, or of all steps of a sink",
                instead="'per step time' as milliseconds",
            ),
        ),
        own_format={
            "record": "per step time: (?P<milliseconds>[0-9.]+) ms",
            "step": "count",
        },
        advice="with data sinks such a line is of as many steps (step: {every: …})",
    ),
    Trainer(
        name="OneFlow",
        literals=(b"train: ", b", total_loss: ", b"[rank:", b" time "),
        pattern=(
            rb"train: (?:epoch N, )?iter N, loss|step: N, total_loss: "
            rb"|\[rank:N\] iter: N/N|[0-9] time N\.N loss "
        ),
        numbers=(
            _rate(rb"top_k: [0-9.]{1,12}, samples/s: " + VALUE, RateScope.GLOBAL),
            _rate(rb"nsp_loss: [0-9.]{1,12}, throughput: " + VALUE, RateScope.GLOBAL),
        ),
        own_format={
            "record": r"(?:iter|step:) (?P<step>[0-9]+), .*(?:samples/s|throughput): "
            "(?P<samples_per_second>[0-9.]+)",
        },
    ),
    Trainer(
        name="HugeCTR",
        literals=(b"[HUGECTR]", b"[HCTR]"),
        pattern=rb"\[HUGECTR\]|\[HCTR\]",
        numbers=(
            Number(
                pattern=rb"Time\((?!1 )[0-9]{1,15} iters\): " + VALUE + rb"s",
                meaning="the time of all iterations since the last line",
                instead="the time stamp in front of the line",
            ),
        ),
        own_format={
            "record": r"\[(?P<timestamp>[0-9:]+)\]\[INFO\]\[R(?:AN)?K0\].*Iter: "
            r"(?P<step>[0-9]+) Time\(",
        },
        advice="its stamps are of whole seconds: measure many steps",
    ),
)

BENCHMARK_TRAINERS: Final = (*_PADDLE, *_NVIDIA, *_MXNET, *_FURTHER, *_SHIPPED)

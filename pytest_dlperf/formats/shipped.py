"""The log formats that ship with the package: the trainers of the original benchmark, and ours.

Expressions hold a fixed text, by which the scan of a large log stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pytest_dlperf.formats.expressions import Expression
from pytest_dlperf.formats.facts import CASE_FACTS, Fact
from pytest_dlperf.formats.log_format import JoinedRecords, LogFormat, Published, Ranks, Rule
from pytest_dlperf.model.case import Case

_WORLD_SIZE: Final = CASE_FACTS["world_size"]
_BATCH: Final = CASE_FACTS["batch_per_replica"]
_FULL: Final = frozenset({"fp32", "tf32"})
_HALF: Final = frozenset({"amp", "fp16"})
_OTHERS: Final = frozenset({"bf16", "fp8", "mxfp8", "nvfp4"})
"""Precisions that the original trainers cannot have, as far as their logs tell."""
_WIDTHS: Final = {"fp32": _FULL, "bf16": frozenset({"bf16", "amp"}), "fp16": _HALF}
"""What a width of numbers may be called by a case."""


def _precision(*known: frozenset[str]) -> Callable[[Case], object]:
    """Make what says the precision of a case, if it is one of those that are known."""
    return lambda case: case.precision if any(case.precision in each for each in known) else None


def _has(option: str) -> Callable[[Case], object]:
    return lambda case: option in case.options


def _batch_per_node(case: Case) -> int | None:
    return case.batch_per(case.topology.nodes)


def _arcface(case: Case) -> str | None:
    """Say which loss ArcFace takes: with several devices, its classes are spread over them."""
    if not case.model.startswith("arcface"):
        return None
    return "arcface" if case.topology.world_size == 1 else "dist_arcface"


def _scales_statically(case: Case) -> bool | None:
    return "static_loss_scale" in case.options if case.precision in _HALF else None


def _fact(  # noqa: PLR0913, PLR0917 - as a row of a table
    name: str,
    pattern: str,
    declared: Callable[[Case], object],
    values: Mapping[str, object] = MappingProxyType({}),
    option: str | None = None,
    replaces: str | None = None,
) -> Fact:
    return Fact(name, Expression(pattern), declared, values, option, replaces)


def _switch(yes: object, no: object) -> dict[str, object]:
    """Say what a switch means to a case; some programs print it as a number."""
    return {
        **dict.fromkeys(("True", "true", "1"), yes),
        **dict.fromkeys(("False", "false", "0"), no),
    }


_KNOWN: Final = _precision(_FULL, _HALF, _OTHERS)
# Off where the loss is scaled by a number.
_SCALING: Final = _scales_statically, _switch(yes=False, no=True), "static_loss_scale"

# All repetitions are bounded: a line may be long and full of begins of records, and each of them
# must cost little.
#
# Numbers and steps are bounded, so that no text can become an integer of thousands of digits.
_STEP = "[0-9]{1,15}"
# Wide enough for nan, inf and signs: a malformed time must match, to be refused.
_NUMBER = "[-+.0-9a-zA-Z]{1,40}"
_COUNT = r"([0-9]{1,15})\b"
_SWITCH = r"([Tt]rue|[Ff]alse|[01])\b"

_PADDLE_RESNET: Final = LogFormat(
    # PaddlePaddle/models release/1.8, PaddleCV/image_classification, utils/utility.py. What
    # stands in front differs between the versions of Paddle, so nothing there is looked at. The
    # rest of the record holds no square bracket: two records never count as one.
    name="paddle_resnet",
    record=Expression(
        rf"Pass (?P<epoch>{_STEP}), train batch (?P<step>{_STEP})\] [^\[]{{0,400}}, "
        rf"elapse (?P<seconds>{_NUMBER}) sec"
    ),
    first_step=0,
    first_epoch=0,
    even_epochs=True,
    facts=(
        # The blank in front tells it from test_batch_size.
        _fact("batch_size (of a node)", r" batch_size : " + _COUNT, _batch_per_node),
        _fact("PADDLE_TRAINERS_NUM", r"PADDLE_TRAINERS_NUM\W{1,4}" + _COUNT, _WORLD_SIZE),
        _fact("use_fp16", r" use_fp16 : " + _SWITCH, _KNOWN, _switch(_HALF, _FULL)),
        _fact("use_dali", r" use_dali : " + _SWITCH, _has("dali"), option="dali"),
        _fact("use_dynamic_loss_scaling", " use_dynamic_loss_scaling : " + _SWITCH, *_SCALING),
    ),
    # PaddlePaddle/resnet50v1.5/extract_paddle_logs.py
    published=Published(rule=Rule.MEAN_SPEED, glued=JoinedRecords.LAST),
)

# All parameters stand on one line, which can be longer than other records, but never holds two.
_SAME_LINE = "(?:[^-]|-(?! PARAMETER )){0,8000}"
_PARAMETERS = " - PARAMETER " + _SAME_LINE

_DLLOGGER: Final = LogFormat(
    # NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets with dllogger. A stamp of a
    # whole second comes without a fraction. MXNet's trainer differs in the name of its speed,
    # which every rank prints.
    name="dllogger",
    record=Expression(
        rf"DLL (?P<timestamp>[0-9][-0-9:. ]{{18,25}}) - Epoch: (?P<epoch>{_STEP}) "
        rf"Iteration: (?P<step>{_STEP}) {{1,9}}train\."
        r"(?!ips |loss : [^ ]{1,40} {1,9}train\.ips )"
    ),
    first_step=1,
    first_epoch=0,
    settling_steps=5,
    even_epochs=True,
    facts=(
        _fact("batch_size", _PARAMETERS + r" batch_size : " + _COUNT, _BATCH),
        _fact("world_size", _PARAMETERS + r" world_size : " + _COUNT, _WORLD_SIZE),
        _fact(
            "fp16",
            _PARAMETERS + r" fp16 : " + _SWITCH,
            _KNOWN,
            _switch(frozenset({"fp16"}), _FULL | _HALF | _OTHERS),
        ),
        _fact("amp", _PARAMETERS + r" amp : " + _SWITCH, _KNOWN, _switch(_HALF, _FULL | {"fp16"})),
        _fact(
            "amp",
            rf" - PARAMETER (?!{_SAME_LINE} fp16 : (?:True|1)\b){_SAME_LINE} amp : (False|0)\b",
            _KNOWN,
            _switch(None, _FULL),
        ),
        _fact("dynamic_loss_scale", f"{_PARAMETERS} dynamic_loss_scale : {_SWITCH}", *_SCALING),
        _fact(
            "data_backend",
            _PARAMETERS + r" data_backend : (dali|pytorch|syntetic)\b",
            _has("dali"),
            {"dali": True, "pytorch": False, "syntetic": False},
            "dali",
        ),
    ),
    # NVIDIADeepLearningExamples/PyTorch/resnet50v1.5/extract_pytorch_logs_time.py
    published=Published(rule=Rule.ELAPSED, only_steps_above=5, print_interval=1),
)

_PYTORCH_IMAGENET: Final = LogFormat(
    # pytorch/examples, imagenet/main.py. Older revisions count from 0, later ones from 1. The
    # original leaves out the indexes 0 to 5, which are six steps.
    name="pytorch_imagenet",
    record=Expression(
        rf"Epoch: \[(?P<epoch>{_STEP})\]\[ {{0,15}}(?P<step>{_STEP})/ {{0,15}}"
        rf"(?P<epoch_length>{_STEP})\][ \t]{{1,9}}Time {{1,9}}(?P<seconds>{_NUMBER}) \("
    ),
    first_epoch=0,
    ranks=Ranks.LOCAL,
    settling_steps=6,
    # PyTorch/resnet50v1.5/extract_pytorch_logs_time.py
    published=Published(rule=Rule.MEAN_DURATION, glued=JoinedRecords.LAST_STEP, only_steps_above=5),
)

_PLSC_SPEED: Final = r"-?[0-9]{1,15}\.[0-9]{2}(?![0-9])|-?inf\b|nan\b"

_PLSC_STAMP: Final = r"INFO (?P<timestamp>[0-9][-0-9:, ]{15,25}) [^\]]{1,100}\] ?"

_PLSC: Final = LogFormat(
    # PaddlePaddle/PLSC 1.x, plsc/entry.py. The printed speed is global, and counts the time inside
    # of steps only, not what the data loader takes between them: the stamps tell all of it. The
    # first line, of batch 0, is one slow step alone; each later one ends a period.
    name="plsc",
    record=Expression(
        rf"{_PLSC_STAMP}Pass:(?P<epoch>{_STEP}) batch:(?P<step>{_STEP}) [^P]{{0,400}}"
        rf"qps:(?:{_PLSC_SPEED})"
    ),
    first_step=0,
    first_epoch=0,
    ranks=Ranks.LOCAL,
    settling_steps=1,
    even_epochs=True,
    facts=(
        _fact("train_batch_size", r"\ttrain_batch_size: " + _COUNT, _BATCH),
        _fact(
            "Set train batch size to",
            r"Set train batch size to " + _COUNT,
            _BATCH,
            replaces="train_batch_size",
        ),
        _fact("num_trainers", r"num_trainers: " + _COUNT, _WORLD_SIZE),
        _fact("loss_type", r"\tloss_type: ([a-z_]{1,40})\b", _arcface),
        _fact(
            "Set loss_type to",
            r"Set loss_type to ([a-z_]{1,40})\b",
            _arcface,
            replaces="loss_type",
        ),
    ),
    # The extraction script of the arcface benchmark: means over the lines of all ranks.
    published=Published(
        rule=Rule.MEAN_RATE,
        only_first_epoch=True,
        print_interval=10,
        lines_grow_with_nodes=True,
        record=Expression(
            rf"Pass:(?P<epoch>{_STEP}) batch:(?P<step>{_STEP}) [^P]{{0,400}}"
            rf"qps:(?P<samples_per_second>{_PLSC_SPEED})"
        ),
    ),
)

_TF_MODELS_BERT: Final = LogFormat(
    # tensorflow/models r2.3.0, official/nlp/bert, by absl's logging. Where TensorFlow's own
    # handler prints each record a second time, the copy has no stamp and is passed over.
    name="tf_models_bert",
    record=Expression(
        "[IWEF](?P<timestamp>[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\\.[0-9]{1,9})?) "
        rf"[^\]]{{1,100}}\] ?Train Step: (?P<step>{_STEP})/"
    ),
    first_step=1,
    facts=(
        _fact("Number of cores used", r"Number of cores used : {1,9}([0-9]{1,15})\b", _WORLD_SIZE),
        # What TensorFlow says by itself; without these lines nothing is known.
        _fact(
            "mixed precision",
            r"Mixed precision compatibility check \((mixed_float16)\)",
            _KNOWN,
            {"mixed_float16": _HALF},
        ),
        _fact("that it uses", r"Compiled cluster using (XLA)!", _has("xla"), {"XLA": True}, "xla"),
    ),
    # TensorFlow/bert/extract_tensorflow_logs_time.py
    published=Published(rule=Rule.ELAPSED, min_warmup=20, print_interval=1, time_of_day=True),
)

_DLPERF: Final = LogFormat(
    # The trainers of this package, and what it has other people's print.
    name="dlperf",
    record=Expression(
        f"dlperf step rank=(?P<rank>{_STEP}) step=(?P<step>{_STEP}) time=(?P<timestamp>{_NUMBER}) "
    ),
    first_step=1,
    ranks=Ranks.LOCAL,
    facts=tuple(
        _fact(
            name,
            rf"dlperf run .{{0,300}}\b{name}=([0-9a-z]{{1,15}})(?:\s|$)",
            declared,
            _WIDTHS if name == "precision" else {},
        )
        for name, declared in (
            ("batch_per_device", _BATCH),
            *((name, said) for name, said in CASE_FACTS.items() if name != "precision"),
            ("precision", _precision(*_WIDTHS.values())),
        )
    ),
)

BUILTIN_FORMATS: Final[Mapping[str, LogFormat]] = MappingProxyType(
    {
        each.name: each
        for each in (_PADDLE_RESNET, _DLLOGGER, _PYTORCH_IMAGENET, _PLSC, _TF_MODELS_BERT, _DLPERF)
    }
)


def merged_formats(more: Iterable[LogFormat]) -> dict[str, LogFormat]:
    """Merge the formats of this package with those that plugins add; ``ValueError`` on a clash."""
    formats = dict(BUILTIN_FORMATS)
    for item in more:
        if item.name in formats:
            raise ValueError(f"the log format {item.name!r} is already registered")
        formats[item.name] = item
    return formats

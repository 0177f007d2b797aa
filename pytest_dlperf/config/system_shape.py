"""The shape of a system file: its keys, and what each of them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.cases import CASES, FLOPS_KEYS, name_shape
from pytest_dlperf.config.extends import BASE, EXTENDS, partial_schema
from pytest_dlperf.config.log_format import log_shape
from pytest_dlperf.config.metrics import METRICS, unit_shape
from pytest_dlperf.files.shapes import (
    Integer,
    Key,
    ListOf,
    Number,
    Record,
    Shape,
    Text,
)
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import check_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.formats.log_format import LogFormat

DEFAULT_REPEATS: Final = 5
DEFAULT_TOLERANCE_PERCENT: Final = 5.0
# A whole system that is skipped or expected to fail would be a green that means nothing.
_TAKEN_MARKS: Final = (
    "dlperf",
    "filterwarnings",
    "parametrize",
    "skip",
    "skipif",
    "usefixtures",
    "xfail",
)


def _mark(text: str) -> str:
    if not text.isidentifier() or text.startswith("_"):
        raise ValueError(f"{text!r} cannot be a marker; use letters, digits and underscores")
    if text in _TAKEN_MARKS:
        raise ValueError(f"the marker {text!r} has a meaning of its own; use another name")
    return text


_WINDOW: Final = Record(
    Window,
    Key("warmup_steps", Integer(0), "Steps that are left out first.", required=True),
    Key("measured_steps", Integer(1), "Steps that are measured after them.", required=True),
)


_PROBES: Final = ListOf(Text("a probe"), "a list of probes, as in [host-memory, torch-gloo]")


class _SystemShape(Record[dict[str, Any]]):
    """A system file: whole, or extending another one."""

    def json_schema(self) -> dict[str, Any]:
        whole = super().json_schema()
        return {
            "type": "object",
            "if": {"required": [EXTENDS]},
            "then": partial_schema(whole),
            "else": {key: value for key, value in whole.items() if key != "type"},
        }


def system_shape(formats: Mapping[str, LogFormat], launch: Shape[Any]) -> Record[dict[str, Any]]:
    """Declare a system file; ``launch`` is the shape of that key."""
    return _SystemShape(
        dict[str, Any],
        Key(
            "framework",
            name_shape("framework"),
            "First part of the case ids, as in pytorch.",
            required=True,
        ),
        Key(
            "model",
            name_shape("model"),
            "Second part of the case ids, as in resnet50.",
            required=True,
        ),
        Key(
            "unit",
            unit_shape("images/s").parsed(check_unit),
            "Unit of the throughput, as in images/s. With tokens/s a sample counts as its "
            "tokens. A probe has none.",
        ),
        Key(
            "log",
            log_shape(formats),
            "How its logs are named and read.",
        ),
        Key("window", _WINDOW, "The steps of a run that are measured. A probe has none."),
        Key(
            "cases",
            CASES,
            "What is measured: one case for each topology of each entry.",
            required=True,
        ),
        *FLOPS_KEYS,
        Key(
            "metrics",
            METRICS,
            "What is judged or recorded besides throughput and speedup, by name.",
        ),
        Key(
            "repeats",
            Integer(1),
            f"Runs of a case, whose median counts; default: {DEFAULT_REPEATS}. "
            "--dlperf-repeats overrides it.",
        ),
        Key(
            "tolerance_percent",
            Number(below=100, unit="percent"),
            "How much worse than its baseline a metric may be; default: "
            f"{DEFAULT_TOLERANCE_PERCENT:g}. A metric's own tolerance wins, and a baseline's "
            "over that.",
        ),
        Key(
            "marks",
            ListOf(Text("a marker's name").parsed(_mark), "a list of markers"),
            "pytest markers of its tests, for -m.",
        ),
        Key(
            "launch",
            launch,
            "How to start the trainer. Without it, only existing logs can be judged.",
        ),
        Key(
            "needs",
            _PROBES,
            "Probes that run first on the hosts of a case. If one breaks, the case is not started.",
        ),
        Key("companions", _PROBES, "Probes that run on the hosts of a case once it is red."),
        Key("resource", Text(), "What of its hosts a probe measures, as in network."),
        Key(
            EXTENDS,
            BASE,
            "The system that this one builds on: one that ships, or a file. Says only what "
            "differs.",
        ),
    )

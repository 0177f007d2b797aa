"""Systems: what ``systems/*.yaml`` declares about one trainer, and the cases it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.launch_reading import read_launch
from pytest_dlperf.files.yamlfile import Problem, YamlError, YamlValue, load
from pytest_dlperf.logs.formats import LogFormat, custom_format
from pytest_dlperf.model.case import Case, Topology, check_name, check_precision
from pytest_dlperf.model.measurement import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pytest_dlperf.config.launch_spec import LaunchSpec

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
DEFAULT_REPEATS: Final = 5
DEFAULT_TOLERANCE_PERCENT: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One trainer: framework and model, how it is started and read, and its cases.

    ``unit`` is what throughput counts (``images/s``), ``log_name`` the first part of its logs'
    names, ``repeats`` how often a case is run, ``tolerance_percent`` how far the median may lie
    below a baseline that gives no tolerance of its own. ``launch`` is ``None`` for a system whose
    logs are only read.
    """

    framework: str
    model: str
    unit: str
    log_name: str
    log_format: LogFormat
    window: Window
    repeats: int
    tolerance_percent: float
    marks: tuple[str, ...]
    launch: LaunchSpec | None
    cases: tuple[Case, ...]
    file: Path

    @property
    def id(self) -> str:
        """The name that cases, baselines and options know the system by."""
        return f"{self.framework}-{self.model}"


def system_files(directories: Iterable[Path]) -> list[Path]:
    """The system files of some folders, those of each in the order of their names."""
    return [
        file
        for directory in directories
        for file in sorted((*directory.glob("*.yaml"), *directory.glob("*.yml")))
    ]


def load_systems(files: Iterable[Path], formats: Mapping[str, LogFormat]) -> dict[str, System]:
    """Read all systems, by id, in the order of the files.

    Raises:
        YamlError: With all mistakes of all files.
    """
    systems: dict[str, System] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            system = load(file, lambda root: _read_system(root, formats))
        except YamlError as error:
            problems.extend(error.problems)
            continue
        if system.id in systems:
            first = systems[system.id].file
            message = f"the system {system.id} is declared twice; the first is in {first}"
            problems.append(Problem(file, 1, "$", message))
            continue
        systems[system.id] = system
    if problems:
        raise YamlError(problems)
    return systems


def _read_system(root: YamlValue, formats: Mapping[str, LogFormat]) -> System:
    fields = root.fields(
        required=("framework", "model", "unit", "log", "window", "cases"),
        optional=("repeats", "tolerance_percent", "marks", "launch"),
    )
    framework = fields.get("framework", _name("framework"), "")
    model = fields.get("model", _name("model"), "")
    no_log: tuple[str, LogFormat | None] = ("", None)
    log_name, log_format = fields.get("log", lambda v: _read_log(v, formats), no_log)
    # None where a mistake hides some of them: then nobody can say what no case has.
    cases: tuple[Case, ...] | None = None
    if framework and model:
        cases = fields.get("cases", lambda v: _read_cases(v, framework, model), None)
    # After a mistake the stand-ins below are never seen: load() raises.
    return System(
        framework=framework,
        model=model,
        unit=fields.get("unit", lambda v: v.parsed(_unit, "a unit such as images/s"), ""),
        log_name=log_name,
        log_format=log_format,  # type: ignore[arg-type] # None only after a mistake
        window=fields.get("window", _read_window, Window(warmup_steps=0, measured_steps=1)),
        repeats=fields.get("repeats", lambda v: v.whole_number(1), DEFAULT_REPEATS),
        tolerance_percent=fields.get(
            "tolerance_percent", lambda v: v.percentage(), DEFAULT_TOLERANCE_PERCENT
        ),
        marks=fields.get("marks", _read_marks, ()),
        launch=fields.get("launch", lambda v: read_launch(v, cases), None),
        cases=cases or (),
        file=root.file,
    )


def _name(axis: str) -> Callable[[YamlValue], str | None]:
    def parse(text: str) -> str:
        check_name(axis, text)
        return text

    return lambda value: value.parsed(parse, "a name such as 'resnet50'")


def _unit(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"the unit {text!r} is not one line of plain text")
    return text


def _read_window(value: YamlValue) -> Window:
    fields = value.fields(required=("warmup_steps", "measured_steps"))
    return Window(
        warmup_steps=fields.get("warmup_steps", lambda v: v.whole_number(0), 0),
        measured_steps=fields.get("measured_steps", lambda v: v.whole_number(1), 1),
    )


def _read_log(value: YamlValue, formats: Mapping[str, LogFormat]) -> tuple[str, LogFormat | None]:
    fields = value.fields(required=("name", "format"))

    def parse_name(text: str) -> str:
        if "/" in text or not text.isprintable() or text.startswith("."):
            raise ValueError(f"a log's name cannot begin with {text!r}")
        return text

    name = fields.get("name", lambda v: v.parsed(parse_name, "the first part of a file name"), "")
    place = fields.place("format")
    if place is None:
        return name, None
    if place.is_mapping:
        return name, _read_custom_format(place)
    chosen = place.choice(tuple(formats), otherwise="a mapping with 'record'")
    return name, formats.get(chosen) if chosen else None


def _read_custom_format(value: YamlValue) -> LogFormat | None:
    fields = value.fields(required=("record",), optional=("first_step", "ranks", "rate_scope"))
    record = fields.get("record", lambda v: v.text("a regular expression"), "")
    given: dict[str, Any] = {}
    if "first_step" in fields:
        given["first_step"] = fields.get("first_step", lambda v: v.whole_number(0), 0)
    if "ranks" in fields:
        given["ranks"] = fields.get("ranks", lambda v: v.choice(("one", "local")), "one")
    if "rate_scope" in fields:
        given["rate_scope"] = fields.get(
            "rate_scope", lambda v: v.choice(("global", "node", "rank")), "global"
        )
    if not record:
        return None
    try:
        return custom_format(value.file.stem, record=record, **given)
    except ValueError as error:
        value.fault(str(error))
        return None


def _read_marks(value: YamlValue) -> tuple[str, ...]:
    def parse(text: str) -> str:
        if not text.isidentifier() or text.startswith("_"):
            raise ValueError(f"{text!r} cannot be a marker; use letters, digits and underscores")
        if text in _TAKEN_MARKS:
            raise ValueError(f"the marker {text!r} has a meaning of its own; use another name")
        return text

    read = (item.parsed(parse, "a marker's name") for item in value.items("a list of markers"))
    return tuple(mark for mark in read if mark is not None)


def _read_cases(value: YamlValue, framework: str, model: str) -> tuple[Case, ...] | None:
    first: dict[str, YamlValue] = {}
    cases: list[Case] = []
    items = value.items("a list of cases")
    is_whole = bool(items)
    for item in items:
        for place, case in _read_entry(item, framework, model):
            if case is None:
                is_whole = False
            elif case.id in first:
                place.fault(f"{case.id} is named twice; first on line {first[case.id].line}")
            else:
                first[case.id] = place
                cases.append(case)
    return tuple(cases) if is_whole else None


def _read_entry(
    item: YamlValue, framework: str, model: str
) -> Iterable[tuple[YamlValue, Case | None]]:
    """The entry's cases with their places; ``None`` for what a mistake hides."""
    fields = item.fields(
        required=("precision", "batch_per_device", "topologies"), optional=("options",)
    )
    precision = fields.get("precision", _precision, "")
    batch = fields.get("batch_per_device", lambda v: v.whole_number(1), 0)
    options: tuple[str, ...] | None = ()
    if "options" in fields:
        options = fields.get("options", _read_options, None)
    topologies = fields.place("topologies")
    places = topologies.items("a list of topologies such as 4n8g") if topologies else []
    if not places:
        yield item, None
    for place in places:
        topology = place.parsed(Topology.parse, "a topology such as 4n8g")
        if not (precision and batch and options is not None and topology):
            yield place, None
            continue
        case = Case(
            framework=framework,
            model=model,
            precision=precision,
            batch_per_device=batch,
            options=options,
            topology=topology,
        )
        yield place, case


def _precision(value: YamlValue) -> str | None:
    return value.parsed(check_precision, "a precision such as fp32")


def _read_options(value: YamlValue) -> tuple[str, ...] | None:
    items = value.items("a list of options such as xla")
    read = [item.parsed(_option, "an option such as xla") for item in items]
    options = [option for option in read if option is not None]
    if not items or len(options) < len(items):
        return None
    for option in set(options):
        if options.count(option) > 1:
            value.fault(f"the option {option!r} is named twice")
    return tuple(sorted(set(options)))


def _option(text: str) -> str:
    check_name("option", text)
    return text

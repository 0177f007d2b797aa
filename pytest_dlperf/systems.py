"""Systems: what ``systems/*.yaml`` declares about one trainer, and the cases it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.cases import Case, Topology, check_name, check_precision
from pytest_dlperf.launch.plan import LaunchSpec
from pytest_dlperf.logs.formats import LogFormat, custom_format
from pytest_dlperf.measurement import Window
from pytest_dlperf.yamlfile import Fields, Problem, YamlError, YamlValue, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

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
    cases: tuple[Case, ...] = ()
    if framework and model:
        cases = fields.get("cases", lambda v: _read_cases(v, framework, model), ())
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
        launch=fields.get("launch", _read_launch, None),
        cases=cases,
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


def _read_launch(value: YamlValue) -> LaunchSpec:
    fields = value.fields(
        required=("command",),
        optional=(
            "environment",
            "working_directory",
            "requires_modules",
            "install_hint",
            "time_limit_s",
            "pause_s",
        ),
    )
    spec = LaunchSpec(
        command=fields.get("command", _texts("a list: the program and its arguments"), ()),
        environment=fields.get("environment", _read_environment, {}),
        working_directory=fields.get("working_directory", lambda v: v.text("a folder"), None),
        requires_modules=fields.get("requires_modules", _texts("a list of Python modules"), ()),
        install_hint=fields.get("install_hint", lambda v: v.text(), None),
        **_seconds(fields),
    )
    # Without a command its absence has been told already.
    for problem in spec.problems() if spec.command else ():
        value.fault(problem)
    return spec


def _seconds(fields: Fields) -> dict[str, float]:
    """The given times only: what is left out keeps the launch's own default."""
    read: dict[str, float] = {}
    if "time_limit_s" in fields:
        read["time_limit_s"] = fields.get(
            "time_limit_s", lambda v: v.positive_number(unit="seconds"), 1.0
        )
    if "pause_s" in fields:
        read["pause_s"] = fields.get(
            "pause_s", lambda v: v.positive_number(or_zero=True, unit="seconds"), 0.0
        )
    return read


def _texts(allowed: str) -> Callable[[YamlValue], tuple[str, ...]]:
    def read(value: YamlValue) -> tuple[str, ...]:
        read = (item.scalar() for item in value.items(allowed))
        return tuple(text for text in read if text is not None)

    return read


def _read_environment(value: YamlValue) -> dict[str, str]:
    read = {key: item.scalar() for key, item in value.entries("a mapping of names to values")}
    return {key: text for key, text in read.items() if text is not None}


def _read_cases(value: YamlValue, framework: str, model: str) -> tuple[Case, ...]:
    first: dict[str, YamlValue] = {}
    cases: list[Case] = []
    for item in value.items("a list of cases"):
        for place, case in _read_entry(item, framework, model):
            if case.id in first:
                place.fault(f"{case.id} is named twice; first on line {first[case.id].line}")
            else:
                first[case.id] = place
                cases.append(case)
    return tuple(cases)


def _read_entry(item: YamlValue, framework: str, model: str) -> Iterable[tuple[YamlValue, Case]]:
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
    for place in places:
        topology = place.parsed(Topology.parse, "a topology such as 4n8g")
        if precision and batch and options is not None and topology:
            yield (
                place,
                Case(
                    framework=framework,
                    model=model,
                    precision=precision,
                    batch_per_device=batch,
                    options=options,
                    topology=topology,
                ),
            )


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

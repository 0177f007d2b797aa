"""Reads ``launch`` in system files and ``vars`` in cluster files, each mistake with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_dlperf.config.launch_spec import (
    ALWAYS,
    EVERY_SYSTEM_TAKES,
    Choice,
    Condition,
    ConditionalArguments,
    Counts,
    Devices,
    LaunchSpec,
    StartOn,
    Variable,
    VariableKind,
)
from pytest_dlperf.config.variables import Assignment, split_arguments
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.case import check_precision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from enum import Enum

    from pytest_dlperf.files.yamlfile import YamlValue
    from pytest_dlperf.model.case import Case

T = TypeVar("T")

_PROGRAM: Final = "a list: the program and its arguments"
# Stands for a text that is a mistake, so that those behind it keep their places in the list.
_STAND_IN: Final = "-"


def read_launch(value: YamlValue, cases: Sequence[Case] | None) -> LaunchSpec:
    """Read a system's ``launch``.

    ``cases`` are those of the system; ``None`` where not all of them could be read.
    """
    return _LaunchReader(value, cases).read()


class _LaunchReader:
    """Reads one launch entry and tells its mistakes where they stand."""

    def __init__(self, value: YamlValue, cases: Sequence[Case] | None) -> None:
        self._root = value
        self._cases = cases
        self._places: dict[str, YamlValue] = {}

    def read(self) -> LaunchSpec:
        readers: dict[str, Callable[[YamlValue], Any]] = {
            "devices": lambda v: _word(v, Devices),
            "start_on": lambda v: _word(v, StartOn),
            "variables": self._variables,
            "values": self._values,
            "environment": self._environment,
            "working_directory": lambda v: self._kept(v).text("a folder"),
            "requires_modules": _modules,
            "install_hint": lambda v: v.text(),
            "time_limit_s": _seconds,
            "first_step_limit_s": _seconds,
            "step_limit_s": _seconds,
            "run_to_end": lambda v: v.yes_or_no(),
            "retries": lambda v: v.whole_number(0),
            "pause_s": lambda v: v.positive_number(or_zero=True, unit="seconds"),
        }
        fields = self._root.fields(required=("command",), optional=tuple(readers))
        read = {key: fields.get(key, reader, None) for key, reader in readers.items()}
        # What is left out keeps the launch's own default.
        given: dict[str, Any] = {key: value for key, value in read.items() if value is not None}
        spec = LaunchSpec(command=fields.get("command", self._command, ()), **given)
        self._tell(spec)
        return spec

    def _tell(self, spec: LaunchSpec) -> None:
        problems = [*spec.problems()] if spec.command else []
        if spec.command and not problems:
            # The single device of a case is the reference of its speedup, declared or not.
            declared = [case for one in self._cases or () for case in (one, one.single_device)]
            found = {
                problem.path: problem
                for case in reversed(declared)
                for problem in spec.case_problems(case)
            }
            problems = list(found.values())
        for problem in problems:
            self._place(problem.path).fault(problem.message)

    def _place(self, path: str) -> YamlValue:
        """The place with this path in the file, or the nearest one around it."""
        full = f"{self._root.path}.{path}"
        around = [known for known in self._places if full.startswith(known)]
        return self._places[max(around, key=len)] if around else self._root

    def _kept(self, value: YamlValue) -> YamlValue:
        self._places[value.path] = value
        return value

    def _scalar(self, value: YamlValue) -> str:
        text = self._kept(value).scalar()
        return _STAND_IN if text is None else text

    # ------------------------------------------------------------------- the parts

    def _command(self, value: YamlValue) -> tuple[str | ConditionalArguments, ...]:
        return tuple(self._part(item) for item in self._kept(value).items(_PROGRAM))

    def _part(self, item: YamlValue) -> str | ConditionalArguments:
        # An unquoted {placeholder} is a mapping to YAML, and told as what it is meant for.
        if not item.is_mapping or _is_bare_placeholder(item):
            return self._scalar(item)
        fields = self._kept(item).fields(required=("when", "arguments"))
        none: tuple[str, ...] = ()
        return ConditionalArguments(
            arguments=fields.get("arguments", self._texts, none),
            when=fields.get("when", self._condition, ALWAYS),
        )

    def _texts(self, value: YamlValue) -> tuple[str, ...]:
        return tuple(self._scalar(item) for item in value.items("a list of arguments"))

    def _environment(self, value: YamlValue) -> dict[str, str | tuple[Choice, ...]]:
        entries = self._kept(value).entries("a mapping of names to values")
        return {
            name: self._choices(item) if item.is_list else self._scalar(item)
            for name, item in entries
        }

    def _values(self, value: YamlValue) -> dict[str, tuple[Choice, ...]]:
        entries = value.entries("a mapping of names to lists of choices")
        return {name: self._choices(item) for name, item in entries}

    def _choices(self, value: YamlValue) -> tuple[Choice, ...]:
        items = self._kept(value).items("a list of choices, each with 'value'")
        return tuple(self._choice(item) for item in items)

    def _choice(self, item: YamlValue) -> Choice:
        fields = self._kept(item).fields(required=("value",), optional=("when",))
        return Choice(
            value=fields.get("value", self._scalar, _STAND_IN),
            when=fields.get("when", self._condition, ALWAYS),
        )

    def _variables(self, value: YamlValue) -> dict[str, Variable]:
        entries = value.entries("a mapping of names to what they mean")
        return {name: self._variable(item) for name, item in entries}

    def _variable(self, item: YamlValue) -> Variable:
        fields = self._kept(item).fields(required=("meaning",), optional=("kind", "default"))
        return Variable(
            meaning=fields.get("meaning", lambda v: v.text("what the user has to give"), ""),
            kind=fields.get("kind", lambda v: _word(v, VariableKind), VariableKind.TEXT),
            default=fields.get("default", lambda v: self._kept(v).scalar(), None),
        )

    def _condition(self, value: YamlValue) -> Condition:
        fields = value.fields(
            required=(),
            optional=(
                "precision",
                "without_precision",
                "option",
                "without_option",
                "nodes",
                "devices_per_node",
                "world_size",
            ),
        )
        cases = self._cases
        precisions = None if cases is None else {case.precision for case in cases}
        options = None if cases is None else {option for case in cases for option in case.options}

        def precision(item: YamlValue) -> str | None:
            found = item.parsed(check_precision, "a precision such as fp32")
            return _declared(item, "precision", found, precisions)

        def option(item: YamlValue) -> str | None:
            return _declared(item, "option", item.text("an option such as xla"), options)

        return Condition(
            precisions=fields.get("precision", lambda v: _one_or_more(v, precision), ()),
            without_precisions=fields.get(
                "without_precision", lambda v: _one_or_more(v, precision), ()
            ),
            options=fields.get("option", lambda v: _one_or_more(v, option), ()),
            without_options=fields.get("without_option", lambda v: _one_or_more(v, option), ()),
            nodes=fields.get("nodes", _counts, None),
            devices_per_node=fields.get("devices_per_node", _counts, None),
            world_size=fields.get("world_size", _counts, None),
        )


def _declared(
    item: YamlValue, axis: str, found: str | None, known: Iterable[str] | None
) -> str | None:
    """Refuse what no case has: a condition on it would never hold, and nobody would notice."""
    if found is not None and known is not None and found not in known:
        there_are = f"the cases have {', '.join(sorted(known)) or 'none'}"
        item.fault(f"no case has the {axis} {found!r}; {there_are}{nearest(found, known)}")
    return found


def _one_or_more(value: YamlValue, read: Callable[[YamlValue], T | None]) -> tuple[T, ...]:
    items = value.items("a name or a list of names") if value.is_list else [value]
    return tuple(found for item in items if (found := read(item)) is not None)


def _counts(value: YamlValue) -> Counts | None:
    if not value.is_list:
        return _count(value)
    found = [(item, _count(item)) for item in value.items("a list of counts")]
    numbers: list[int] = []
    for item, counts in found:
        if counts is not None and counts.at_least is not None:
            item.fault("'at least so many' stands alone, not in a list")
        elif counts is not None:
            numbers += counts.among
    return Counts(among=tuple(numbers)) if numbers else None


def _count(value: YamlValue) -> Counts | None:
    text = value.scalar("a count such as 2, or 2+ for at least so many")
    if text is None:
        return None
    try:
        return Counts.parse(text)
    except ValueError as error:
        value.fault(str(error))
        return None


_E = TypeVar("_E", bound="Enum")


def _word(value: YamlValue, choices: type[_E]) -> _E | None:
    word = value.choice([choice.value for choice in choices])
    return None if word is None else choices(word)


def _seconds(value: YamlValue) -> float | None:
    return value.positive_number(unit="seconds")


def _modules(value: YamlValue) -> tuple[str, ...]:
    read = (item.scalar() for item in value.items("a list of Python modules"))
    return tuple(text for text in read if text is not None)


def _is_bare_placeholder(item: YamlValue) -> bool:
    if not item.is_flow:
        return False
    entries = item.entries()
    return len(entries) == 1 and entries[0][1].is_empty


# ----------------------------------------------------------------------- cluster files


def read_assignments(value: YamlValue) -> tuple[Assignment, ...]:
    """Read a cluster's ``vars``: what is set, by system id or ``*``.

    Which systems and variables there are is not known here: see ``check_assignments``.
    """
    return tuple(
        assignment
        for system, place in value.entries("a mapping of system ids, or '*', to what is set")
        for name, item in place.entries("a mapping of names to values")
        for assignment in _assignments(system, name, item)
    )


def _assignments(system: str, name: str, item: YamlValue) -> Iterator[Assignment]:
    if name == "env":
        for key, inner in item.entries("a mapping of names to values"):
            yield from _assignment(system, name, inner, inner.scalar(), key)
    elif name == "extra_args":
        yield from _assignment(system, name, item, _extra_arguments(item))
    else:
        allowed = "text or a number"
        hint = f" ({name} is one value)" if name in EVERY_SYSTEM_TAKES else ""
        yield from _assignment(system, name, item, item.scalar(allowed + hint))


def _assignment(
    system: str, name: str, item: YamlValue, value: str | tuple[str, ...] | None, key: str = ""
) -> Iterator[Assignment]:
    if value is None:
        return
    place = f"{item.file}:{item.line}"
    try:
        yield Assignment(
            system=system, name=name, key=key, value=value, place=place, key_path=item.path
        )
    except ValueError as error:
        item.fault(str(error))


def _extra_arguments(item: YamlValue) -> tuple[str, ...] | None:
    if item.is_list:
        read = [inner.scalar() for inner in item.items("a list of arguments")]
        return None if None in read else tuple(text for text in read if text is not None)
    text = item.scalar("a list of arguments, or text that is split as by a shell")
    try:
        return None if text is None else split_arguments(text)
    except ValueError as error:
        item.fault(str(error))
        return None

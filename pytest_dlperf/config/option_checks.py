"""What options may not say together. Each check is a function that raises a ``UsageError``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.config.options import OPTIONS
from pytest_dlperf.config.values import ControlArm, Given, file_to_write, folder_to_write, history
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from pytest_dlperf.config.options import Settings

_ENOUGH_FOR_SEQUENTIAL: Final = 3


def check_together(settings: Settings, others: Mapping[str, Path]) -> None:
    """Check all that can be said without the suite.

    ``others`` are the files that pytest and other plugins were told to write, by option.
    """
    if settings.reason and not settings.update_baselines:
        raise UsageError(
            "--dlperf-reason says why numbers are accepted; give --dlperf-update-baselines too"
        )
    _check_sequential(settings)
    _check_launching(settings)
    _check_reports(settings, others)
    if settings.strict and settings.unknown_variables:
        raise UsageError("; ".join(settings.unknown_variables))


def check_places(settings: Settings, others: Mapping[str, Path], systems: Container[str]) -> None:
    """Check places of reports where there is a suite of these ``systems``."""
    for option, path in others.items():
        file_to_write(Given(str(path), option, Path()))
        if option == "--benchmark-json" and not path.parent.is_dir():
            raise UsageError(
                f"{option}: {str(path)!r} cannot be written: there is no folder {path.parent}, "
                "and pytest-benchmark makes none"
            )
    _check_tables(settings, others, systems)


def _check_sequential(settings: Settings) -> None:
    repeats = settings.repeats
    is_sequential = settings.gate is not None and settings.gate.value == "sequential"
    if is_sequential and repeats is not None and repeats < _ENOUGH_FOR_SEQUENTIAL:
        raise UsageError(
            f"--dlperf-gate sequential needs {_ENOUGH_FOR_SEQUENTIAL} runs at least, and {repeats} "
            "were asked for; leave --dlperf-repeats out"
        )


def _check_launching(settings: Settings) -> None:
    if not settings.log_sources:
        return
    if settings.dry_run:
        raise UsageError(
            "--dlperf-dry-run prints what would be launched, and with --dlperf-logs nothing is; "
            "leave one of them out"
        )
    if settings.control is ControlArm.ALWAYS:
        raise UsageError(
            "--dlperf-control always launches runs, and with --dlperf-logs nothing is launched; "
            "leave one of them out"
        )


def _check_reports(settings: Settings, others: Mapping[str, Path]) -> None:
    """Refuse two reports in one place: the second would take the place of the first."""
    first: dict[Path, str] = {}
    for option, path in _reports(settings).items():
        # A pipe or a terminal takes one report after the other.
        if not path.exists() or path.is_file() or path.is_dir():
            _take(first, option, path)
    for option, path in others.items():
        if path.resolve() in first:
            _take(first, option, path)
    summary = settings.step_summary
    if summary is not None and summary.resolve() in first:
        raise UsageError(
            f"{first[summary.resolve()]} names {summary}, the summary of GitHub Actions, which "
            "gets the Markdown page by itself; leave the option out"
        )


def _take(first: dict[Path, str], option: str, path: Path) -> None:
    earlier = first.setdefault(path.resolve(), option)
    if earlier != option:
        raise UsageError(f"{earlier} and {option} both name {path}; give each a file of its own")


def _check_tables(settings: Settings, others: Mapping[str, Path], systems: Container[str]) -> None:
    if settings.tables_directory is None:
        return
    tables = settings.tables_directory.resolve()
    for option, file in (_reports(settings) | dict(others)).items():
        path = file.resolve()
        is_page = path.parent == tables and path.suffix == ".md" and path.stem in systems
        if is_page or (path.parent.parent == tables and path.parent.name in systems):
            raise UsageError(
                f"{option} names {file}, where --dlperf-tables writes a table; give it another name"
            )


def _reports(settings: Settings) -> dict[str, Path]:
    """The places of our own reports, by option: what is read as something to write."""
    written = (file_to_write, folder_to_write, history)
    places = {
        option.flag: getattr(settings, name)
        for name, option in OPTIONS.items()
        if option.read in written
    }
    return {flag: path for flag, path in places.items() if path is not None}

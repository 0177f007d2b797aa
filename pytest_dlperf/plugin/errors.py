"""Errors of the rooms below, told in pytest's terms, and how pytest is kept from one of its own."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_dlperf.model.errors import CannotMeasureError, DlperfError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@contextmanager
def ending_session() -> Iterator[None]:
    """Have a mistake of the user end the session before it runs anything."""
    try:
        yield
    except UsageError as error:
        raise pytest.UsageError(_plain(error)) from error


def outcome_of(error: DlperfError) -> BaseException:
    """Return what a test raises: it skips where it cannot measure here, and fails otherwise."""
    if isinstance(error, CannotMeasureError):
        return pytest.skip.Exception(_plain(error))
    return pytest.fail.Exception(_plain(error), pytrace=False)


def not_collected(why: UsageError | str) -> pytest.Collector.CollectError:
    """Return what a test raises that cannot be given its cases."""
    return pytest.Collector.CollectError(_plain(why))


def _plain(told: object) -> str:
    from pytest_dlperf.reports.numbers import plain

    return plain(str(told))


def keep_junit_here(config: pytest.Config, others: Mapping[str, Path]) -> OSError | None:
    """Have pytest write its JUnit file nowhere, where another user leads; return what is wrong.

    It follows any link, and writes the file even at the end of a session that a mistake has ended.
    """
    from pytest_dlperf.files.writing import destination

    if "--junitxml" not in others:
        return None
    try:
        destination(others["--junitxml"])
    except OSError as error:
        for plugin in config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "LogXML":
                plugin.logfile = os.devnull
        return error
    return None

"""Errors of the rooms below, told in pytest's terms: no other module does that."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_dlperf.model.errors import CannotMeasureError, DlperfError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ending_session() -> Iterator[None]:
    """Have a mistake of the user end the session before it runs anything."""
    try:
        yield
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def end_test(error: DlperfError) -> NoReturn:
    """Skip a test that cannot measure here; fail one for anything else."""
    if isinstance(error, CannotMeasureError):
        pytest.skip(str(error))
    pytest.fail(str(error), pytrace=False)

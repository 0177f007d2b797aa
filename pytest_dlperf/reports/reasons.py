"""Reasons that hold for many cases: those that differ by the case alone are told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_dlperf.model.case import Case


def alike(reason: str, case: Case) -> str:
    """What a reason has in common with that of other cases: all but their names."""
    return reason.replace(case.id, "").replace(str(case.topology), "")

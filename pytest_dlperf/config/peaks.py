"""What devices can do at most, as their vendors publish it: a table, read when MFU is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - read by msgspec
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pytest_dlperf.files.yamlfile import YamlValue, load

_TABLE: Final = Path(__file__).with_name("peaks.yaml")
_MAX_DEVIATION: Final = 0.1
"""A declared peak that differs by a larger part may be of another device, or with sparsity."""


class Peak(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dense peaks of a device in TFLOP/s, by precision.

    ``device`` is an expression for all of its name, as the vendor's tool prints it; ``source`` is
    the vendor's page.
    """

    device: str
    source: str
    peaks: Mapping[str, float]


def published_peak(device: str | None, precision: str) -> float | None:
    """Look up what one device can do without sparsity, in TFLOP/s; ``None`` if not listed."""
    found = (row.peaks for row in _table() if re.fullmatch(row.device, device or ""))
    return next(found, {}).get(precision)


def peak_remark(device: str | None, precision: str, declared: float) -> str | None:
    """Say that a declared peak, in TFLOP/s, is far from a published one; else ``None``."""
    published = published_peak(device, precision)
    if published is None or abs(declared / published - 1) <= _MAX_DEVIATION:
        return None
    return (
        f"peak_tflops of cluster.yaml gives {declared:g} for {precision}, and {published:g} is "
        f"what one {device} can do without sparsity: see which of the two mfu should be a part of"
    )


@cache
def _table() -> tuple[Peak, ...]:
    return msgspec.convert(load(_TABLE, YamlValue.plain), tuple[Peak, ...], strict=False)

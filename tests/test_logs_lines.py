"""Lines that cannot hold a record are left out, and none that does."""

from __future__ import annotations

import re

import log_makers as make
import pytest

from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.logs.lines import Sieve
from pytest_dlperf.logs.reader import Region

NOISE = (
    "node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
    "W0910 12:00:00.123456 20011 device_context.cc:252] device: 0",
    "epochs end here: DLL, train. Epoch",
)


def log(noise_lines: int) -> bytes:
    lines: list[str] = []
    for record in make.dllogger([0.1] * 300).splitlines():
        lines += [NOISE[(len(lines) + k) % len(NOISE)] for k in range(noise_lines)]
        lines.append(record)
    return "\n".join(lines).encode()


def records(content: bytes) -> list[bytes]:
    record = BUILTIN_FORMATS["dllogger"].record
    assert isinstance(record, re.Pattern)
    return [match[0] for match in record.finditer(content)]


def sieved(content: bytes) -> bytes | None:
    """What is let through once the sieve is at work."""
    sieve = Sieve(BUILTIN_FORMATS["dllogger"].texts)
    region = Region(bytearray(content + b"more"), len(content), 0, terminated=False)
    while (lines := sieve.lines(region)) is None:
        pass
    return lines


@pytest.mark.parametrize("noise_lines", [0, 1, 30])
def test_every_record_is_let_through(noise_lines: int) -> None:
    lines = sieved(log(noise_lines))
    assert lines is not None
    assert records(lines) == records(log(noise_lines))
    assert len(records(lines)) == 300


def test_most_noise_is_not() -> None:
    lines = sieved(log(30))
    assert lines is not None
    assert b"NCCL" not in lines
    assert b"device_context" not in lines


def test_where_it_lets_too_much_through_it_rests() -> None:
    sieve = Sieve(BUILTIN_FORMATS["dllogger"].texts)
    content = log(0)
    region = Region(bytearray(content), len(content), 0, terminated=True)
    at_work = [sieve.lines(region) is not None for _ in range(200)]
    assert sum(at_work) < 5

"""How a log is read: in pieces of whole lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.clock import Clock, StampKind, parse
from pytest_dlperf.logs.lines import LONGEST_LINE, LogFile, blocks, line_number

# Pieces of whole lines, whatever the buffer; and the benchmark that times them

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "read_logs.py"


def pieces(path, buffer_size):
    with LogFile(path) as file:
        return [(each.text, each.offset, each.is_whole) for each in blocks(file, buffer_size)]


@pytest.mark.parametrize("buffer_size", [1, 3, 10, 64, 1 << 18])
def test_pieces_are_whole_lines_and_nothing_is_lost(tmp_path, buffer_size):
    log = tmp_path / "run.log"
    content = b"first\nsecond, longer than some buffers\r\n\n\0\0third\rlast"
    log.write_bytes(content)
    found = pieces(log, buffer_size)
    lines = content.replace(b"\r", b"\n").replace(b"\0", b"\n")
    assert b"".join(text for text, _, _ in found) == lines
    for text, offset, is_whole in found:
        assert lines[offset:].startswith(text)
        assert is_whole is text.endswith(b"\n")
    assert [is_whole for _, _, is_whole in found][-1] is False
    assert all(is_whole for _, _, is_whole in found[:-1])


@pytest.mark.parametrize("buffer_size", [1000, 1 << 18, 1 << 24])
def test_a_line_without_end_is_cut_at_the_same_places(tmp_path, buffer_size):
    log = tmp_path / "run.log"
    log.write_bytes(b"a\n" + b"b" * (2 * LONGEST_LINE + 5) + b"\nc\n")
    cuts = [
        offset + len(text) for text, offset, is_whole in pieces(log, buffer_size) if not is_whole
    ]
    assert cuts == [2 + LONGEST_LINE, 2 + 2 * LONGEST_LINE]


def test_lines_are_counted_as_an_editor_does(tmp_path):
    log = tmp_path / "run.log"
    log.write_bytes(b"1\n2\r still 2\r\n3\n" * 100_000)
    with LogFile(log) as file:
        assert line_number(file, 0) == 1
        assert line_number(file, 1) == 1
        assert line_number(file, 2) == 2
        assert line_number(file, 16 * 50_000) == 150_001


@pytest.mark.parametrize(
    ("text", "kind", "seconds", "decimals"),
    [
        (b"2020-09-15 14:29:18.553769", StampKind.DATED, 737683 * 86400 + 52158.553769, 6),
        (b"2020-09-15T14:29:18", StampKind.DATED, 737683 * 86400 + 52158, 0),
        (b"2020/9/15 14:29:18,5", StampKind.DATED, 737683 * 86400 + 52158.5, 1),
        (b"2020-09-15T14:29:18.5Z", StampKind.DATED, 737683 * 86400 + 52158.5, 1),
        (b"2020-09-15T16:29:18+02:00", StampKind.DATED, 737683 * 86400 + 52158, 0),
        (b"2020-09-15T11:59:18-0230", StampKind.DATED, 737683 * 86400 + 52158, 0),
        (b" 8:32:30.228544", StampKind.TIME_OF_DAY, 30750.228544, 6),
        (b"1597933942.9863544", StampKind.NUMBER, 1597933942.9863544, 7),
        (b"17", StampKind.NUMBER, 17, 0),
    ],
)
def test_stamps_are_told_apart_by_their_form(text, kind, seconds, decimals):
    stamp = parse(text)
    assert stamp.kind is kind
    assert stamp.nanoseconds / 1e9 == pytest.approx(seconds, abs=1e-5)
    assert stamp.decimals == decimals


@pytest.mark.parametrize(
    "text",
    [b"", b"soon", b"nan", b"-5.0", b"1e5", b"25:00:00", b"12:60:00", b"2020-02-30 10:00:00"],
)
def test_what_is_no_stamp(text):
    with pytest.raises(BrokenContractError):
        parse(text)


def test_microseconds_of_a_date_are_not_lost():
    clock = Clock()
    clock.read(b"2020-09-15 14:29:18.553769")
    clock.read(b"2020-09-15 14:29:28.553770")
    assert clock.seconds == 10.000001


def test_a_clock_passes_midnight_but_never_goes_back():
    clock = Clock()
    for text in (b"23:59:59.5", b"00:00:00.5", b"12:00:00.0", b"23:00:00.0", b"01:00:00.0"):
        clock.read(text)
    assert clock.seconds == 25 * 3600 + 0.5
    with pytest.raises(
        BrokenContractError, match=r"time runs backwards: '00:59:00' follows '01:00:00\.0'"
    ):
        clock.read(b"00:59:00")
    with pytest.raises(BrokenContractError, match="seconds as a number after time without date"):
        clock.read(b"5.5")


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (("11/20/26 10:00:22", "11/20/26 10:01:22"), 60),
        (("11/20/2026 10:00:22.5", "11/20/2026 10:00:23"), 0.5),
        (("20.11.2026 10:00:22,250", "20.11.2026 10:00:23,000"), 0.75),
        # Of any date but one that begins with the year, only the time counts.
        (("11/30/26 23:59:59", "12/01/26 00:00:01"), 2),
        (("12/31/26 11:59:59 PM", "01/01/27 12:00:01 AM"), 2),
        (("31/12 23:59:59", "01/01 00:00:01"), 2),
        (("1231 23:59:59", "0101 00:00:01"), 2),
        (("11/20/26 10:00:22", "11/24/26 10:01:22"), 60),
        # Twelve hours
        (("11:59:59 AM", "12:00:01 PM", "12:59:59 PM", "1:00:00 pm"), 3601),
        (("11:59:59 P.M.", "12:00:01 A.M."), 2),
        (("2026-11-20 12:59:59 am", "2026-11-20 01:00:00 pm"), 12 * 3600 + 1),
    ],
)
def test_dates_in_figures_and_clocks_of_twelve_hours(texts, seconds):
    clock = Clock()
    for text in texts:
        clock.read(text.encode())
    assert clock.seconds == seconds


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        (("11/20/26 10:00:22", "11/20/26 10:00:21"), "time runs backwards"),
        (("13:00:00 PM",), "not a time of day"),
        (("0:30:00 AM",), "not a time of day"),
        (("2026-11-20 12:59:59", "2026-11-20 01:00:01"), "time runs backwards"),
        (("12:59:59", "01:00:01"), "time runs backwards"),
    ],
)
def test_what_a_clock_refuses(texts, match):
    clock = Clock()
    for text in texts[:-1]:
        clock.read(text.encode())
    with pytest.raises(BrokenContractError, match=match):
        clock.read(texts[-1].encode())


@pytest.mark.slow
def test_the_benchmark_reads_its_logs():
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--size-mb", "1", "--repeats", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all steps, csv" in done.stdout

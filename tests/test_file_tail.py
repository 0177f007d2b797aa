"""Files that a trainer writes beside its output: what is new in them, line by line."""

import os

from pytest_dlperf.node.relay import FileTail


def new(tail):
    """All that is new."""
    found = b""
    while lines := tail.take():
        found += lines
    return found


def append(file, text):
    with file.open("ab") as opened:
        opened.write(text)


def test_lines_are_given_once_and_when_they_have_ended(tmp_path):
    file = tmp_path / "metrics.jsonl"
    tail = FileTail(str(file))
    assert new(tail) == b""
    append(file, b'{"step": 1}\n{"step"')
    assert new(tail) == b'{"step": 1}\n'
    append(file, b": 2}")
    assert new(tail) == b""
    append(file, b"\n")
    assert new(tail) == b'{"step": 2}\n'
    assert new(tail) == b""


def test_what_an_earlier_run_has_left_is_not_given(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b"old\n" * 100)
    tail = FileTail(str(file))
    assert new(tail) == b""
    append(file, b"new\n")
    assert new(tail) == b"new\n"


def test_a_shorter_file_is_given_from_its_begin(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(b"old\n" * 3)
    tail = FileTail(str(file))
    file.write_bytes(b"a\nb\n")
    assert new(tail) == b"a\nb\n"


def test_all_files_of_a_name_are_followed_as_they_come(tmp_path):
    (tmp_path / "old.csv").write_bytes(b"old\n")
    tail = FileTail(str(tmp_path / "*.csv"))
    append(tmp_path / "version_1.csv", b"a\n")
    append(tmp_path / "version_2.csv", b"b\n")
    append(tmp_path / "notes.txt", b"c\n")
    assert new(tail) == b"a\nb\n"
    append(tmp_path / "version_1.csv", b"d\n")
    assert new(tail) == b"d\n"


def test_lines_of_any_length_pass(tmp_path):
    file = tmp_path / "log"
    tail = FileTail(str(file))
    text = b"x" * 300_000 + b"\n" + b"short\n" * 50_000
    file.write_bytes(text)
    assert new(tail) == text
    append(file, b"y" * (1 << 20))
    assert new(tail) == b"y" * (1 << 20)


def test_what_is_no_file_gives_nothing(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "pipe/below"):
        assert new(FileTail(str(tmp_path / name))) == b""

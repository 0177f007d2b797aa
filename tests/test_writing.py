"""Files are written whole or at their end, and never where another user leads them."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from other_users import OTHER, as_other, in_child, needs_root, shared_folder

from pytest_dlperf.config.values import OptionText, file_to_write, folder_to_write
from pytest_dlperf.files import writing
from pytest_dlperf.files.writing import (
    check_own,
    destination,
    make_folder,
    open_at_end,
    write_whole,
)
from pytest_dlperf.history.store import HistoryError, open_database
from pytest_dlperf.model.errors import UsageError


def append(path: Path, text: bytes) -> None:
    with open_at_end(path) as file:
        file.write(text)


@pytest.fixture
def place() -> Iterator[Path]:
    with shared_folder() as folder:
        yield folder


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of root's that another user would like to have overwritten."""
    file = tmp_path / "precious"
    file.write_text("kept", encoding="utf-8")
    return file


# ------------------------------------------------------------------ what is ours


def test_links_of_ones_own_are_followed(tmp_path: Path) -> None:
    (tmp_path / "nights").mkdir()
    (tmp_path / "runs").symlink_to("nights")
    (tmp_path / "nights" / "latest.json").symlink_to("../2026.json")
    write_whole(tmp_path / "runs" / "latest.json", "new")
    append(tmp_path / "runs" / "latest.json", b" and more")
    assert (tmp_path / "2026.json").read_text(encoding="utf-8") == "new and more"
    assert (tmp_path / "nights" / "latest.json").is_symlink()


def test_what_the_kernel_makes_of_a_pipe_without_a_name_is_written_into() -> None:
    reading, given = os.pipe()
    with os.fdopen(reading) as pipe, os.fdopen(given, "w"):
        write_whole(Path(f"/dev/fd/{given}"), "text")
        os.set_blocking(reading, False)
        assert pipe.read(4) == "text"


def test_links_in_a_circle_are_an_error_and_no_loop(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        destination(tmp_path / "a")


def test_a_file_keeps_its_rights_and_a_new_one_has_the_usual_ones(tmp_path: Path) -> None:
    cases = (("new", 0o644, False), ("kept", 0o640, False), ("closed", 0o600, True))
    for name, mode, is_private in cases:
        file = tmp_path / name
        if name == "kept":
            file.touch()
            file.chmod(mode)
        before = os.umask(0o022)
        try:
            write_whole(file, "text", is_private=is_private)
        finally:
            os.umask(before)
        assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_folder_of_ours_keeps_itself_out_of_git(tmp_path: Path) -> None:
    make_folder(tmp_path / ".dlperf" / "runs")
    assert (tmp_path / ".dlperf" / ".gitignore").read_text(encoding="utf-8") == "*\n"


# ------------------------------------------------------------------ what a kill leaves


def test_what_a_killed_writer_has_left_goes_when_the_next_one_writes(tmp_path: Path) -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: killed())
        child = in_child(lambda: write_whole(tmp_path / "results.json", "half"))
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    [left] = tmp_path.iterdir()
    (tmp_path / ".dlperf-new-of-mine").touch()

    writing.cleaned_up.clear()
    write_whole(tmp_path / "other.json", "whole")

    assert not left.exists()
    assert {file.name for file in tmp_path.iterdir()} == {"other.json", ".dlperf-new-of-mine"}


def test_what_another_process_writes_right_now_stays(tmp_path: Path) -> None:
    def meanwhile(descriptor: int) -> None:
        writing.cleaned_up.clear()
        patch.undo()
        del descriptor
        write_whole(tmp_path / "second.json", "second")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", meanwhile)
        write_whole(tmp_path / "first.json", "first")
    texts = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    assert texts == {"first.json": "first", "second.json": "second"}


# ------------------------------------------------------------------ what another user plants


def test_what_others_may_write_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "history.sqlite3"
    check_own(file)  # there is none
    file.touch()
    user = SimpleNamespace(pw_gid=file.stat().st_gid, pw_name="ana")
    monkeypatch.setattr("pwd.getpwuid", lambda _: user)
    groups: tuple[tuple[str, list[str], int], ...]
    groups = (("team", [], 0o664), ("ana", ["ana", "ben"], 0o664), ("ana", ["ana"], 0o666))
    for name, members, mode in groups:
        found = SimpleNamespace(gr_gid=user.pw_gid, gr_name=name, gr_mem=members)
        monkeypatch.setattr("grp.getgrgid", lambda _, found=found: found)
        file.chmod(0o644)
        check_own(file)
        file.chmod(mode)
        with pytest.raises(PermissionError, match=f"may be written .*: chmod go-w {file}"):
            check_own(file)
    file.chmod(0o664)
    check_own(file)  # the group is its user's alone


@needs_root
def test_what_another_user_owns_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite3"
    file.touch(mode=0o600)
    os.chown(file, OTHER, OTHER)
    with pytest.raises(PermissionError, match=f"{file} decides .*, and belongs to user .*{OTHER}"):
        check_own(file)


@needs_root
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda file: write_whole(file, "new"), id="whole"),
        pytest.param(lambda file: append(file, b"new"), id="at the end"),
        pytest.param(lambda file: open_database(file, 0.1, create=True), id="a database"),
        pytest.param(
            lambda file: file_to_write(OptionText(str(file), "--dlperf-json", file)), id="an option"
        ),
    ],
)
def test_a_link_of_another_user_is_told_and_not_followed(
    place: Path, precious: Path, act: Callable[[Path], object]
) -> None:
    file = place / "results.json"
    as_other(lambda: file.symlink_to(precious))
    with pytest.raises((OSError, HistoryError, UsageError), match=rf"{file} .*{OTHER}"):
        act(file)
    assert precious.read_text(encoding="utf-8") == "kept"


@needs_root
def test_a_link_behind_ones_own_is_looked_at_as_well(place: Path, precious: Path) -> None:
    as_other(lambda: (place / "2026.json").symlink_to(precious))
    (place / "latest.json").symlink_to("2026.json")
    with pytest.raises(PermissionError, match=r"2026\.json is a link of user"):
        write_whole(place / "latest.json", "new")
    assert precious.read_text(encoding="utf-8") == "kept"


@needs_root
def test_a_folder_behind_a_link_of_another_user_is_none_to_write_into(
    place: Path, tmp_path: Path
) -> None:
    as_other(lambda: (place / "reports").symlink_to(tmp_path))
    for name in ("out.json", "new/out.json"):
        with pytest.raises(PermissionError, match="reports is a link of user"):
            write_whole(place / "reports" / name, "new")
    with pytest.raises(UsageError, match=r"--dlperf-tables: .*reports is a link of user"):
        folder_to_write(OptionText(str(place / "reports"), "--dlperf-tables", place))
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_user_follows_the_links_of_administrators_to_folders(place: Path) -> None:
    """Where not everybody may put links, and to folders: the file itself is named by its user."""

    def write() -> None:
        write_whole(place / "projects" / "team" / "out.json", "new")

    administrators = OTHER + 1
    (place / "disk").mkdir()
    os.chown(place / "disk", OTHER, OTHER)
    (place / "projects").mkdir()
    os.chown(place / "projects", administrators, administrators)
    as_other(lambda: (place / "projects/team").symlink_to("../disk"), uid=administrators)
    as_other(write)
    assert (place / "disk" / "out.json").read_text(encoding="utf-8") == "new"
    (place / "projects").chmod(0o1777)
    os.chown(place / "projects", 0, 0)
    with pytest.raises(AssertionError, match=r"PermissionError.*team is a link of user"):
        as_other(write)


@needs_root
@pytest.mark.skipif(sys.platform != "linux", reason="others refuse such links by themselves")
def test_a_second_name_of_a_file_is_not_added_to(place: Path, tmp_path: Path) -> None:
    precious = place / "precious"
    precious.write_text("kept", encoding="utf-8")
    # Some systems leave making such a link to the file's owner; it is in the other's folder.
    (place / "theirs").mkdir()
    os.chown(place / "theirs", OTHER, OTHER)
    os.link(precious, place / "theirs" / "run.log")
    with pytest.raises(PermissionError, match="a second name"):
        append(place / "theirs" / "run.log", b"new")
    # A report takes the name away from it.
    write_whole(place / "theirs" / "run.log", "new")
    assert precious.read_text(encoding="utf-8") == "kept"

    os.link(precious, tmp_path / "mine.txt")
    append(tmp_path / "mine.txt", b" and more")
    assert precious.read_text(encoding="utf-8") == "kept and more"


@needs_root
def test_a_pipe_of_another_user_is_not_written_into(place: Path) -> None:
    as_other(lambda: os.mkfifo(place / "results.json"))
    with pytest.raises(PermissionError, match=rf"results\.json is a pipe of user .*{OTHER}"):
        write_whole(place / "results.json", "new")
    with pytest.raises(PermissionError, match=r"results\.json is a pipe of user"):
        append(place / "results.json", b"new")

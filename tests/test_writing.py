"""Files are written whole or at their end, and ours never where a link leads."""

import os
import signal
import socket
import stat

import pytest
from other_users import in_child

from pytest_dlperf.files.writing import make_folder, open_at_end, open_regular, write_whole


def append(path, text):
    with open_at_end(path) as file:
        file.write(text)


# ------------------------------------------------------------------ what is ours


def test_links_to_reports_are_followed(tmp_path):
    (tmp_path / "nights").mkdir()
    (tmp_path / "runs").symlink_to("nights")
    (tmp_path / "nights" / "latest.json").symlink_to("../2026.json")
    write_whole(tmp_path / "runs" / "latest.json", "new")
    assert (tmp_path / "2026.json").read_text(encoding="utf-8") == "new"
    assert (tmp_path / "nights" / "latest.json").is_symlink()


def test_a_file_keeps_its_rights_and_a_new_one_has_the_usual_ones(tmp_path):
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


def test_a_folder_of_ours_keeps_itself_out_of_git(tmp_path):
    make_folder(tmp_path / ".dlperf" / "runs")
    assert (tmp_path / ".dlperf" / ".gitignore").read_text(encoding="utf-8") == "*\n"


# ------------------------------------------------------------------ what a kill leaves


def test_a_killed_writer_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "results.json"
    file.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))

    child = in_child(lambda: write_whole(file, "new"))

    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert file.read_text(encoding="utf-8") == "old"


# ------------------------------------------------------------------ what another user plants


def leading(file, precious):
    """Put a link to a precious file into the place of another."""
    precious.write_text("kept", encoding="utf-8")
    file.symlink_to(precious)
    return file


def test_a_file_of_ours_takes_the_place_of_a_link(tmp_path):
    precious = tmp_path / "precious"
    for name, how in (("system.json", {"is_ours": True}), ("command.json", {"is_private": True})):
        file = leading(tmp_path / name, precious)
        write_whole(file, "new", **how)
        assert (file.is_symlink(), file.read_text(encoding="utf-8")) == (False, "new")
    assert precious.read_text(encoding="utf-8") == "kept"


def test_nothing_is_added_to_what_a_link_leads_to(tmp_path):
    precious = tmp_path / "precious"
    with pytest.raises(OSError, match="symbolic links"):
        append(leading(tmp_path / "run_1.log", precious), b"new")
    assert precious.read_text(encoding="utf-8") == "kept"


def test_a_private_file_is_so_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        write_whole(tmp_path / "command.json", "text", is_private=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "command.json").stat().st_mode) == 0o600


# ------------------------------------------------------------------ what is no file


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_only_regular_files_are_opened(tmp_path, kind):
    place = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(place))
    acts = [
        lambda: open_regular(str(place), os.O_RDONLY),
        lambda: write_whole(place, "new"),
        lambda: write_whole(place, "new", is_ours=True),
    ]
    if kind != "device":
        acts.append(lambda: append(place, b"new"))
    for act in acts:
        with pytest.raises(OSError, match=r"not a regular file|No such device"):
            act()
    assert not place.is_file()

"""A run's folder on a node is removed with all that is in it, and nothing that lies elsewhere."""

import os
import stat
from pathlib import Path

import pytest
from other_users import OTHER, as_other, needs_root, shared_folder

from pytest_dlperf.node import host as node_host
from pytest_dlperf.node.host import made_folder, remove

NAME = f"pytest-dlperf-{'0' * 12}-0-gpu01"


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def elsewhere(tmp_path):
    """What a trainer's links lead to."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "samples").write_text("kept", encoding="utf-8")
    (folder / "samples").chmod(0o400)
    folder.chmod(0o500)
    return folder


def is_untouched(folder):
    return (mode(folder), mode(folder / "samples")) == (0o500, 0o400)


def test_links_are_removed_and_not_what_they_lead_to(tmp_path, elsewhere):
    scratch = tmp_path / NAME
    (scratch / "closed").mkdir(parents=True)
    (scratch / "closed" / "up").symlink_to("..")
    (scratch / "data").symlink_to(elsewhere)
    (scratch / "sample").symlink_to(elsewhere / "samples")
    (scratch / "nowhere").symlink_to("nothing")
    assert remove(str(scratch)) is None
    assert not scratch.exists()
    assert is_untouched(elsewhere)


@needs_root
def test_what_another_user_has_written_stays_and_is_told():
    """As of a container that ran as root."""
    with shared_folder() as place:
        theirs = place / NAME / "steps" / "theirs"
        theirs.mkdir(parents=True)
        (theirs / "checkpoint").touch()
        (place / NAME / "own").touch()
        for folder in (place / NAME, place / NAME / "steps"):
            os.chown(folder, OTHER, OTHER)
        told = as_other(lambda: remove(str(place / NAME)))
        assert told.startswith(f"{place / NAME} is left: ")
        assert "Permission denied" in told
        assert sorted(file.name for file in (place / NAME).iterdir()) == ["steps"]


@needs_root
def test_folders_that_another_user_names_like_ours_stay(monkeypatch):
    def plant():
        (place / NAME).mkdir()
        (place / NAME.replace("0-", "2-")).symlink_to(ours)

    monkeypatch.setattr(node_host, "_STALE_S", -1.0)
    with shared_folder() as place:
        ours = place / "ours"
        ours.mkdir()
        as_other(plant)
        os.close(made_folder(str(place / NAME.replace("0-", "1-")), {}))
        assert (place / NAME).exists()
        assert ours.exists()


def test_steps_lie_in_the_folder(tmp_path):
    os.close(made_folder(str(tmp_path / NAME), {"sitecustomize.py": "pass\n"}))
    found = {str(file.relative_to(tmp_path / NAME)) for file in (tmp_path / NAME).rglob("*")}
    assert found == {"scratch", "steps", "steps/sitecustomize.py"}
    assert mode(tmp_path / NAME) == 0o700


def test_a_folder_of_another_host_is_left(tmp_path):
    """On a disk that several hosts see; its lock may not be seen from here."""
    folders = [tmp_path / f"pytest-dlperf-{'1' * 12}-0-{host}" for host in ("gpu01", "gpu02")]
    for folder in folders:
        folder.mkdir()
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    os.close(made_folder(str(tmp_path / NAME), {}))
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before
    assert [folder.exists() for folder in folders] == [False, True]


def test_a_folder_is_removed_as_soon_as_its_lock_is_free(tmp_path):
    """One that is just made may not be locked yet, and has another name so long."""
    folders = [tmp_path / NAME.replace("0-", f"{number}-") for number in range(1, 4)]
    new = tmp_path / f"{NAME}.new"
    new.mkdir()
    locks = [made_folder(str(folder), {}) for folder in folders[:2]]
    os.close(locks[0])
    os.close(made_folder(str(folders[2]), {}))
    assert [folder.exists() for folder in (*folders, new)] == [False, True, True, True]
    os.close(locks[1])

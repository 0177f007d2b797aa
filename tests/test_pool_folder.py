"""The sessions of a user lease hosts in one place, which no other user can take from them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from other_users import OTHER, as_other, needs_root, shared_folder

from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool, users_pool
from pytest_dlperf.model.errors import BrokenError

FIRST = f"pytest-dlperf-hosts-{os.geteuid()}"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of all users of this machine."""
    with shared_folder() as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture
def not_logged_in() -> None:
    if Path(f"/run/user/{os.geteuid()}").exists():
        pytest.skip("the user who runs the tests is logged in")


def test_it_is_in_the_folder_that_the_system_keeps_for_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert users_pool({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "pytest-dlperf-hosts"


@needs_root
def test_a_job_without_the_variable_uses_the_same_folder() -> None:
    """As cron's have none."""
    runtime = Path(f"/run/user/{OTHER}")
    runtime.mkdir(mode=0o700, parents=True)
    os.chown(runtime, OTHER, OTHER)
    try:
        for environment in ({}, {"XDG_RUNTIME_DIR": str(runtime)}, {"XDG_RUNTIME_DIR": "/run"}):
            found = as_other(partial(users_pool, environment))
            assert found == str(runtime / "pytest-dlperf-hosts")
    finally:
        shutil.rmtree(runtime)


@pytest.mark.usefixtures("not_logged_in")
@pytest.mark.parametrize("kind", ["open", "a link", "missing", "relative", "another user's"])
def test_a_folder_that_is_not_the_user_s_alone_is_not_used(
    tmp_path: Path, place: Path, kind: str
) -> None:
    runtime = tmp_path / "runtime"
    if kind == "a link":
        (tmp_path / "other").mkdir(mode=0o700)
        runtime.symlink_to("other")
    elif kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("needs another user: run the tests as root")
        runtime.mkdir(mode=0o700)
        os.chown(runtime, OTHER, OTHER)
    elif kind != "missing":
        runtime.mkdir(mode=0o755)
    given = "runtime" if kind == "relative" else str(runtime)
    assert users_pool({"XDG_RUNTIME_DIR": given}) == place / FIRST


@needs_root
@pytest.mark.usefixtures("not_logged_in")
@pytest.mark.parametrize("what", ["a folder", "a file", "a link to a folder of ours"])
def test_a_name_that_another_user_has_taken_is_left_to_them(place: Path, what: str) -> None:
    (place / "ours").mkdir(mode=0o700)
    taken = place / FIRST

    def take() -> None:
        if what == "a folder":
            taken.mkdir()
        elif what == "a file":
            taken.touch()
        else:
            taken.symlink_to("ours")

    as_other(take)
    second = place / f"{FIRST}-2"
    assert users_pool({}) == second
    # It stays when the first one is free again: others may hold hosts there by now.
    taken.rmdir() if what == "a folder" else taken.unlink()
    assert users_pool({}) == second


@needs_root
@pytest.mark.usefixtures("not_logged_in")
def test_who_has_taken_all_names_is_told(place: Path) -> None:
    names = [FIRST, *(f"{FIRST}-{number}" for number in range(2, 21))]

    def take() -> None:
        for name in names:
            (place / name).touch()

    as_other(take)
    with pytest.raises(BrokenError, match=rf"{FIRST} and 19 more .* number {OTHER}\. "):
        users_pool({})


def test_hosts_are_leased_on_when_the_system_has_removed_the_folder(tmp_path: Path) -> None:
    """It does so when a user logs out, whatever still runs."""
    runtime, temporary = tmp_path / "runtime", tmp_path / "temporary"
    runtime.mkdir()
    places = iter([runtime / "pool", temporary])
    pool = HostPool(lambda: next(places))
    (host,) = parse_hosts("a:1", place="test")

    def log_out(told: str) -> None:
        assert "a held by process" in told
        shutil.rmtree(runtime)

    with (
        HostPool(runtime / "pool").leased([host], nodes=1, devices=1),
        pool.leased([host], nodes=1, devices=1, on_wait=log_out) as leases,
    ):
        assert leases[0].host == host
        assert list(temporary.glob("claim-*"))

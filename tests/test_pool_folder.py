"""The sessions of a user lease hosts in one place, in which no other user has a say."""

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest
from other_users import OTHER, as_other, needs_root, shared_folder

from pytest_dlperf.launch.hosts import parse_hosts
from pytest_dlperf.launch.leases import HostPool, users_folder
from pytest_dlperf.model.errors import BrokenError

FIRST = f"pytest-dlperf-hosts-{os.geteuid()}"


@pytest.fixture
def place(monkeypatch):
    """The temporary folder of all users of this machine."""
    with shared_folder() as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        yield folder


def test_it_is_in_the_folder_that_the_system_keeps_for_the_user(tmp_path):
    assert users_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "pytest-dlperf-hosts"


@needs_root
def test_a_job_without_the_variable_uses_the_same_folder():
    """As cron's have none."""
    runtime = Path(f"/run/user/{OTHER}")
    runtime.mkdir(mode=0o700, parents=True)
    os.chown(runtime, OTHER, OTHER)
    try:
        for environment in ({}, {"XDG_RUNTIME_DIR": str(runtime)}):
            found = as_other(partial(users_folder, environment))
            assert found == str(runtime / "pytest-dlperf-hosts")
    finally:
        shutil.rmtree(runtime)


@pytest.mark.parametrize("kind", ["missing", "relative", "another user's"])
def test_a_folder_that_is_not_the_user_s_is_not_used(tmp_path, place, kind):
    runtime = tmp_path / "runtime"
    if kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("needs another user: run the tests as root")
        runtime.mkdir(mode=0o700)
        os.chown(runtime, OTHER, OTHER)
    given = "." if kind == "relative" else str(runtime)
    assert users_folder({"XDG_RUNTIME_DIR": given}) == place / FIRST


@needs_root
@pytest.mark.parametrize("what", ["a folder", "a file", "a link to a folder of ours"])
def test_a_name_that_another_user_has_taken_is_refused(place, what):
    (place / "ours").mkdir(mode=0o700)
    taken = place / FIRST

    def take():
        if what == "a folder":
            taken.mkdir()
        elif what == "a file":
            taken.touch()
        else:
            taken.symlink_to("ours")

    as_other(take)
    with (
        pytest.raises(BrokenError, match=f"hosts cannot be leased: {taken}"),
        HostPool(taken).leased(parse_hosts("a:1", place="test"), nodes=1, devices=1),
    ):
        pass
    assert not list((place / "ours").iterdir())

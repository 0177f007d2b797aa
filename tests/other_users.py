"""Another user of this machine, whom only root can play."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 60_600 + os.getpid() % 4_900
"""The number of a user that no machine has, and no other process of the tests takes."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs another user: run the tests as root"
)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder like ``/tmp``, in which everybody may write; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def in_child(act: Callable[[], object]) -> int:
    """Do something in a child of this process, which ends with it; return the child's number.

    It imports nothing: the packages may lie where only root gets.
    """
    with warnings.catch_warnings():
        # In a worker of xdist there are threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        # Whatever happens: it would go on as a second copy of the tests.
        try:
            act()
        finally:
            os._exit(0)
    return child


def as_other(act: Callable[[], object], *, uid: int = OTHER) -> str:
    """Do something as another user, in a child, and return what came of it, as text."""
    reading, writing = os.pipe()

    def acting() -> None:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            said = str(act())
        except BaseException:  # noqa: BLE001 - the parent raises it
            said = f"raised {traceback.format_exc()}"
        os.write(writing, said.encode())

    child = in_child(acting)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    if said.startswith("raised "):
        raise AssertionError(said)
    return said

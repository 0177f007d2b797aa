"""Where the sessions of a user on this machine lease their hosts from each other.

It has to be one place for all of them, however they were started, and no other user may have a say
in it. Such a place is the folder that the system keeps for a user who is logged in. Where it does
not, a folder has to do among those that everybody makes: under a name that nobody else has taken.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.writing import user_name
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME: Final = "pytest-dlperf-hosts"
_NAMES: Final = 20
"""So many names another user would have to take to have nothing leased any more."""


def users_pool(environment: Mapping[str, str] = os.environ) -> Path:
    """Find the folder, or make one.

    Raises:
        BrokenError: Other users have taken all its names.
    """
    # A job of cron's has no such variable, and the same folder.
    for runtime in (environment.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        if Path(runtime).is_absolute() and _is_own(Path(runtime), private=True):
            return Path(runtime) / _NAME
    places = list(_in_temporary_folder())
    found = next(filter(_is_own, places), None) or next(filter(_is_made, places), None)
    if found is not None:
        return found
    raise BrokenError(
        f"hosts cannot be leased: {places[0]} and {_NAMES - 1} more like it are of other users: "
        f"{', '.join(_owners(places))}. Have them removed, or set XDG_RUNTIME_DIR to a folder that "
        "only you may enter"
    )


def _in_temporary_folder() -> Iterator[Path]:
    first = Path(tempfile.gettempdir()) / f"{_NAME}-{os.geteuid()}"
    yield first
    for number in range(2, _NAMES + 1):
        yield first.with_name(f"{first.name}-{number}")


def _is_made(folder: Path) -> bool:
    """Make a folder; false where another user has something there."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return _is_own(folder)  # another session of ours may have been faster
    except OSError as error:
        raise BrokenError(f"hosts cannot be leased: {folder}: {error.strerror}") from error
    return True


def _is_own(folder: Path, *, private: bool = False) -> bool:
    """Say whether it is a folder of this user's; a ``private`` one nobody else may enter."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_open = private and status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not is_open


def _owners(places: list[Path]) -> list[str]:
    owners = {place.lstat().st_uid for place in places if place.is_symlink() or place.exists()}
    return sorted(map(user_name, owners))

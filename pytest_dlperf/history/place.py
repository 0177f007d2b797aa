"""Where a database lies: on a disk of this machine, or on one that several machines write to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf"),
        *("virtiofs", "wekafs"),
    )
)


def is_shared(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Say whether other machines may have the folder's file system open at the same time.

    SQLite's write-ahead log needs memory that all its readers share, so it works on one machine
    only. ``False`` where the system does not tell.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = folder.resolve()
    except OSError:
        return False
    longest, kind = -1, ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields, facts = before.split(), after.split()
        if not separator or len(fields) < 5 or not facts:  # noqa: PLR2004 - the mount point is the fifth
            continue
        point = Path(_unescaped(fields[4]))
        # Of two mounts at one point the later one is seen.
        if real.is_relative_to(point) and len(point.parts) >= longest:
            longest, kind = len(point.parts), facts[0]
    return kind in _SHARED or kind.startswith("fuse.")


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point

"""The folder that a run may leave something in."""

from __future__ import annotations

from pathlib import Path

from seed_trainers.flags import expect


def emptied(path: str, *, but: str = "") -> None:
    """Check that a folder is there and empty ``but`` for such files, and leave something in it."""
    folder = Path(path)
    names = [entry.name for entry in folder.iterdir() if not but or not entry.match(but)]
    expect(f"what is in {path}", names, [])
    (folder / "checkpoint").write_text("weights", encoding="utf-8")

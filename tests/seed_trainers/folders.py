"""The folder that a run may leave something in."""

from __future__ import annotations

from pathlib import Path

from seed_trainers.flags import expect


def emptied(path: str) -> None:
    """Check that a folder is there and empty, and leave something in it as trainers do."""
    folder = Path(path)
    expect(f"what is in {path}", [entry.name for entry in folder.iterdir()], [])
    (folder / "checkpoint").write_text("weights", encoding="utf-8")

"""Performance regression tests for distributed deep-learning training, as pytest cases."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder


class _OwnModules:
    """Finds modules of the package before pytest does, which rewrites the asserts of any plugin.

    There is none to rewrite. Where byte code cannot be written, as in an image that another user
    has made, pytest would compile each module anew in every session.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: None = None
    ) -> ModuleSpec | None:
        """Find a module of the package as Python itself does."""
        return PathFinder.find_spec(name, path, target) if name.startswith(_PREFIX) else None


_PREFIX = f"{__name__}."

if "_pytest.assertion.rewrite" in sys.modules:
    sys.meta_path.insert(0, _OwnModules)  # type: ignore[arg-type]

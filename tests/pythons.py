"""Other Pythons of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def old_python(version: str) -> Path | None:
    """A Python of that version on PATH, or one that pyenv has; what is on PATH may not work."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))
    if (on_path := shutil.which(f"python{version}")) is not None:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None

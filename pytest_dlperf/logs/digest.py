"""A digest over logs, by which kept logs are known again as those of an accepted number."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_BLOCK_BYTES: Final = 1 << 20


def digest_of_logs(paths: Iterable[str]) -> str | None:
    """``sha256:`` and the digest over the digests of all logs in their order.

    ``None`` without a log, or where one cannot be read any more.
    """
    whole = hashlib.sha256()
    count = 0
    for path in paths:
        one = hashlib.sha256()
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - names need not be Unicode
                while block := file.read(_BLOCK_BYTES):
                    one.update(block)
        except (OSError, ValueError):
            return None
        whole.update(one.digest())
        count += 1
    return f"sha256:{whole.hexdigest()}" if count else None

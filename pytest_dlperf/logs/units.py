"""Units that logs print numbers in, and what they are worth in the unit that is kept."""

from __future__ import annotations

from typing import Final

_PREFIXES: Final = {
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
_BYTES: Final = {"B": 1.0, "bytes": 1.0, **{f"{name}B": p for name, p in _PREFIXES.items()}}
_JOULES: Final = {**{f"{name}J": p for name, p in _PREFIXES.items()}, "J": 1.0, "Wh": 3.6e3}
_WATTS: Final = {**{f"{name}W": p for name, p in _PREFIXES.items()}, "W": 1.0, "mW": 1e-3}
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3.6e3,
}
_KINDS: Final = (_BYTES, {**_JOULES, "kWh": 3.6e6}, _WATTS, _SECONDS, {"%": 0.01, "": 1.0})
"""What units of one kind are worth in the same one of them."""


def worth(printed: str, kept: str) -> float:
    """Return what one of the unit ``printed`` is worth in the unit ``kept``.

    A prefix alone (k, M, Gi) stands for so many of what is kept, or of bytes.

    Raises:
        ValueError: Nobody can tell.
    """
    if printed == kept:
        return 1.0
    for kind in _KINDS:
        if printed in kind and kept in kind:
            return kind[printed] / kind[kept]
    if kept in _BYTES and printed in _PREFIXES:
        return _PREFIXES[printed] / _BYTES[kept]
    prefix = printed[: -len(kept)] if kept and printed.endswith(kept) else printed
    if prefix.strip() in _PREFIXES:
        return _PREFIXES[prefix.strip()]
    raise ValueError(
        f"what {printed!r} is worth in {kept!r} is not known; known are multiples of B, J, W and s "
        "(kB, MiB, kWh, ms, …), and k, M, G, T before any unit"
    )

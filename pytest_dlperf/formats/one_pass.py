"""Tell which expressions never backtrack: for those, Python's engine is safe, and the faster one.

They are a fixed text with runs of characters in it, each of which ends at a character that cannot
belong to it: ``loss: (?P<value>[0-9.]+) ``. Where a match fails, nothing is left to be tried, and
none of the runs could hold the begin of another attempt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUPS: Final = re.compile(r"\((?:\?:)?|\(\?P<|\)")
_ATOM: Final = re.compile(
    r"\\[dDwWsSt]|\\[^\w\s]|\[(?:[^\\\[]|\\[dDwWsSt]|\\[^\w\s])*\]|[^\\\[\]{}()*+?|^$]", re.DOTALL
)
_BYTES: Final = tuple(bytes((each,)) for each in range(256))


@dataclass(slots=True)
class _Atom:
    """One character, of a set of them; or a run of such."""

    taken: frozenset[bytes]
    may_lack: bool = False
    may_repeat: bool = False


def is_one_pass(tokens: Sequence[str]) -> bool:
    """Say whether an expression, given as its tokens, is surely matched without backtracking."""
    atoms = _atoms(tokens)
    if not atoms or len(atoms[0].taken) != 1 or atoms[0].may_lack or atoms[0].may_repeat:
        return False
    begin = atoms[0].taken
    for position, atom in enumerate(atoms):
        if b"\n" in atom.taken:
            return False
        if not (atom.may_lack or atom.may_repeat):
            continue
        for after in atoms[position + 1 :]:
            if atom.taken & (after.taken | begin):
                return False
            if not after.may_lack:
                break
    return True


def _atoms(tokens: Sequence[str]) -> list[_Atom] | None:
    """Take an expression apart; ``None`` where there is more to it than groups of runs."""
    atoms: list[_Atom] = []
    in_name = closes = False
    for part in tokens:
        if in_name:
            in_name = part != ">"
        elif part in {"*", "+", "?"}:
            if not atoms or closes:
                return None
            atoms[-1].may_lack = part != "+"
            atoms[-1].may_repeat = part != "?"
        elif _GROUPS.fullmatch(part):
            in_name = part == "(?P<"
        elif _ATOM.fullmatch(part) and part.isascii():
            one = re.compile(part.encode())
            atoms.append(_Atom(frozenset(each for each in _BYTES if one.fullmatch(each))))
        else:
            return None
        closes = part == ")"
    return atoms

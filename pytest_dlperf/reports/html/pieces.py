"""Texts of the night in HTML: all that comes in is text."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from pytest_dlperf.night.pieces import Role

if TYPE_CHECKING:
    from pytest_dlperf.night.pieces import Piece, Text

# What a browser must not get as it is: control characters but tab and line feed, characters that
# turn the direction of writing or cannot be seen, and halves of characters, which no file can hold.
_UNSHOWN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_ELEMENTS: Final = {Role.CODE: "code", Role.STRONG: "b"}


def shown(text: str) -> str:
    r"""Return a text in which what cannot be shown stands as its code (``\x1b``)."""
    return text if text.isprintable() else _UNSHOWN.sub(lambda found: ascii(found[0])[1:-1], text)


def rendered(text: Text) -> str:
    """Write each piece by its role; the ids of cases lead to their articles."""
    return "".join(map(_piece, text.pieces))


def _piece(piece: Piece) -> str:
    text = escape(shown(piece.text))
    if piece.address is not None:
        return f'<a href="{escape(piece.address)}">{text}</a>'
    if piece.role is Role.CASE:
        return f'<a class="id" href="#case-{text}">{text}</a>'
    element = _ELEMENTS.get(piece.role)
    return f"<{element}>{text}</{element}>" if element else text

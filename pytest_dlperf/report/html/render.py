"""Fill the templates of the page: all that comes in is text, whatever it looks like."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from pytest_dlperf.model import numbers
from pytest_dlperf.report.facts import terms
from pytest_dlperf.report.html.drawing import badge_of
from pytest_dlperf.report.tables import difference
from pytest_dlperf.report.text import Piece, Role, Text

TEMPLATES: Final = Path(__file__).parent / "templates"
# What a browser must not get as it is: control characters but tab and line feed, characters that
# turn the direction of writing or cannot be seen, and halves of characters, which no file can hold.
_UNSHOWN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_ELEMENTS: Final = {Role.CODE: "code", Role.STRONG: "b"}


def render(**values: Any) -> str:
    r"""Make the page.

    Every value is escaped; what cannot be shown stands there as its code (``\x1b``). The page
    loads nothing and runs nothing but the package's own script.
    """
    return _environment().get_template("page.html.j2").render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "badge": badge_of,
        "difference": difference,
        "number": numbers.number,
        "quantity": numbers.quantity,
        "terms": terms,
    }
    environment.globals |= {"own_file": _own_file, "content_hash": _content_hash}
    return environment


def _shown(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    if isinstance(value, Text):
        return Markup(rendered(value))  # noqa: S704 - each piece is escaped
    if value is None:
        # "None" is nothing to read, and an empty place would hide that a number is missing.
        msg = "a template writes a value that is not there"
        raise TypeError(msg)
    return _visible(value if isinstance(value, str) else str(value))


def _visible(text: str) -> str:
    return text if text.isprintable() else _UNSHOWN.sub(lambda found: ascii(found[0])[1:-1], text)


def rendered(text: Text) -> str:
    """Write each piece by its role; the ids of cases lead to their articles."""
    return "".join(map(_piece, text.pieces))


def _piece(piece: Piece) -> str:
    text = escape(_visible(piece.text))
    if piece.address is not None:
        return f'<a href="{escape(piece.address)}">{text}</a>'
    if piece.role is Role.CASE:
        return f'<a class="id" href="#case-{text}">{text}</a>'
    element = _ELEMENTS.get(piece.role)
    return f"<{element}>{text}</{element}>" if element else text


@cache
def _own_file(name: str) -> Markup:
    # Nothing but the package's own text gets into a page unescaped, and only here.
    return Markup((TEMPLATES / name).read_text(encoding="utf-8").strip())  # noqa: S704


@cache
def _content_hash(name: str) -> str:
    digest = hashlib.sha256(str(_own_file(name)).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

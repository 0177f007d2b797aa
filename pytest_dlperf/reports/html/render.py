"""Fill the templates of the page: all that comes in is text, whatever it looks like."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from pytest_dlperf.model import numbers
from pytest_dlperf.night.pieces import Text
from pytest_dlperf.reports.html.drawing import badge_of
from pytest_dlperf.reports.html.pieces import rendered, shown

TEMPLATES: Final = Path(__file__).parent / "templates"


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
    environment.filters["percent"] = numbers.percent
    environment.filters["badge"] = badge_of
    environment.globals["own_file"] = _own_file
    environment.globals["content_hash"] = _content_hash
    return environment


def _shown(value: Any) -> Any:
    """Return what stands in the page for a value."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Text):
        return Markup(rendered(value))  # noqa: S704 - each piece is escaped
    if value is None:
        # "None" is nothing to read, and an empty place would hide that a number is missing.
        msg = "a template writes a value that is not there"
        raise TypeError(msg)
    return shown(value if isinstance(value, str) else str(value))


@cache
def _own_file(name: str) -> Markup:
    # Nothing but the package's own text gets into a page unescaped, and only here.
    return Markup((TEMPLATES / name).read_text(encoding="utf-8").strip())  # noqa: S704


@cache
def _content_hash(name: str) -> str:
    """Return the digest by which a browser knows a style or script of ours."""
    digest = hashlib.sha256(str(_own_file(name)).encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

"""Pages opened in a real Chromium, without a network, as from a mail or a CI artefact."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, Request

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


needs_chromium = pytest.mark.skipif(
    chromium() is None and os.environ.get("CI") != "true", reason="needs chromium"
)


@dataclass(slots=True)
class PageEvents:
    """What a page has done besides being shown; a good page does nothing."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not (self.messages or self.requests or self.dialogs)


def open_all(page: Page) -> None:
    """Open every case."""
    page.locator("details.case").evaluate_all("all => { for (const one of all) one.open = true; }")


@contextmanager
def started() -> Iterator[Browser]:
    """A browser for the length of the block."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            # As root, Chromium starts without its sandbox only.
            args=["--no-sandbox"] if os.geteuid() == 0 else [],
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(  # noqa: PLR0913 - a browser's settings, by name
    browser: Browser,
    file: Path,
    *,
    width: int = 1400,
    scheme: str = "light",
    with_script: bool = True,
    fragment: str = "",
) -> Iterator[tuple[Page, PageEvents]]:
    """A page from a file, and what it does besides."""
    context: BrowserContext = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=with_script,
        offline=True,
        reduced_motion="reduce",
    )
    seen = PageEvents()
    try:
        page = context.new_page()
        own = file.resolve().as_uri()

        def refuse(dialog: Dialog) -> None:
            seen.dialogs.append(dialog.message)
            dialog.dismiss()

        def note(request: Request) -> None:
            if not request.url.startswith(own):
                seen.requests.append(request.url)

        page.on("console", lambda message: seen.messages.append(message.text))
        page.on("pageerror", lambda error: seen.messages.append(str(error)))
        page.on("dialog", refuse)
        page.on("request", note)
        page.goto(own + fragment)
        yield page, seen
    finally:
        context.close()


def width_beyond(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    return int(
        page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )

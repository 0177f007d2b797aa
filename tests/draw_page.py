"""Draw the pictures of the page in the documentation: ``python tests/draw_page.py``.

It needs Chromium and the package playwright; where pngquant is there, the pictures get a palette, a
third of their size. The session is made up from the published baselines.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import browser as pages
from published_session import (
    PEAK_MEMORY,
    PLENTY,
    STEP_TIME,
    Happening,
    published,
    with_all_else,
    year_of_nights,
)

from pytest_dlperf.reports.html.page import html_page

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
GREEDY: Final = "paddle-resnet50-fp32-b128-1n8g"
"""A case whose memory has grown, with the same throughput."""
WIDTH: Final = 1180


def main() -> None:
    """Write both pictures."""
    happenings = {**PLENTY, GREEDY: Happening(memory=1.06)}
    results = with_all_else(published(happenings, declared=(PEAK_MEMORY, STEP_TIME)))
    with tempfile.TemporaryDirectory() as folder, pages.started() as browser:
        file = Path(folder) / "page.html"
        file.write_text(html_page(results, year_of_nights(results)), encoding="utf-8")
        with pages.opened(browser, file, width=WIDTH) as (page, _):
            for name in ("Open all", "Close all"):
                page.get_by_role("button", name=name).click()
            page.screenshot(
                path=IMAGES / "page-overview.png",
                full_page=True,
                clip={"x": 0, "y": 0, "width": WIDTH, "height": 1480},
            )
            page.get_by_role("button", name=GREEDY, exact=True).click()
            page.locator(f"[id='case-{GREEDY}']").screenshot(path=IMAGES / "page-case.png")
    shrink = shutil.which("pngquant")
    if shrink is not None:
        files = [IMAGES / "page-overview.png", IMAGES / "page-case.png"]
        subprocess.run([shrink, "--force", "--ext", ".png", *files], check=True)


if __name__ == "__main__":
    main()

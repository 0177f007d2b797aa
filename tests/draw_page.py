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
import results_makers as make
from bad_night import SLOWER, bad_night, nights_of

from pytest_dlperf.report.html.page import html_page

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"
WIDTH: Final = 1180


def main() -> None:
    """Write both pictures."""
    results = bad_night()
    with tempfile.TemporaryDirectory() as folder, pages.started() as browser:
        file = Path(folder) / "page.html"
        file.write_text(html_page(make.report(results, nights_of(results))), encoding="utf-8")
        with pages.opened(browser, file, width=WIDTH) as (page, _):
            page.locator("tr.row.open button").first.click()
            page.screenshot(
                path=IMAGES / "page-overview.png",
                full_page=True,
                clip={"x": 0, "y": 0, "width": WIDTH, "height": 1500},
            )
            page.get_by_role("button", name=SLOWER, exact=True).click()
            page.locator(f"[id='case-{SLOWER}']").screenshot(path=IMAGES / "page-case.png")
    shrink = shutil.which("pngquant")
    if shrink is not None:
        files = [IMAGES / "page-overview.png", IMAGES / "page-case.png"]
        subprocess.run([shrink, "--force", "--ext", ".png", *files], check=True)


if __name__ == "__main__":
    main()

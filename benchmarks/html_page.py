"""What the page of 115 cases and a year of nights costs, beside writing the same as JSON.

    python benchmarks/html_page.py [--repeats 5]

Both sides begin with the same results and histories in memory and end with a file on disk, in turn
within one run. The page has a budget of 5 s and 2 MB; the script ends with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from published_session import PLENTY, published, with_all_else, year_of_nights  # noqa: E402

from pytest_dlperf.reports.html.page import html_page  # noqa: E402
from pytest_dlperf.results.writing import to_plain  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.history.series import CaseHistory
    from pytest_dlperf.results.document import Results

MOST_SECONDS: Final = 5.0
MOST_BYTES: Final = 2_000_000


def write_page(file: Path, results: Results, histories: Mapping[str, CaseHistory]) -> None:
    """What is measured."""
    file.write_text(html_page(results, histories), encoding="utf-8")


def write_json(file: Path, results: Results, histories: Mapping[str, CaseHistory]) -> None:
    """The floor: the same values, without a picture of them."""
    nights = {name: asdict(history) for name, history in histories.items()}
    file.write_text(json.dumps([to_plain(results), nights]), encoding="utf-8")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each side")
    repeats = parser.parse_args().repeats
    results = with_all_else(published(PLENTY))
    histories = year_of_nights(results)
    sides = {"page": write_page, "JSON": write_json}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        started = time.perf_counter()
        write_page(file, results, histories)
        first = time.perf_counter() - started
        for _ in range(repeats):
            for name, write in sides.items():
                started = time.perf_counter()
                write(file, results, histories)
                taken[name].append(time.perf_counter() - started)
                sizes[name] = file.stat().st_size
    page, floor = median(taken["page"]), median(taken["JSON"])
    points = sum(len(history.points) for history in histories.values())
    print(
        f"{len(results.cases)} cases, {points} nights of cases: page {page:.2f} s and "
        f"{sizes['page'] / 1e6:.2f} MB (the first one of a process {first:.2f} s); JSON "
        f"{floor:.2f} s and {sizes['JSON'] / 1e6:.2f} MB; ratio {page / floor:.2f} "
        f"(medians of {repeats})"
    )
    return int(first > MOST_SECONDS or sizes["page"] > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())

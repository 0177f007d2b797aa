"""The systems that ship: each loads with the example of its own comment and is documented."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest

from pytest_dlperf.config.extending import shipped_systems
from pytest_dlperf.config.systems import System, load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

SYSTEMS_PAGE: Final = Path(__file__).parent.parent / "docs" / "systems.md"
GENERATED: Final = "<!-- from here on: python tests/test_shipped_systems.py -->\n"
SHIPPED: Final = shipped_systems()


def comment(name: str) -> str:
    """What a shipped file says of itself: the comment at its top."""
    text = SHIPPED[name].read_text(encoding="utf-8")
    return re.sub("(?m)^# ?", "", text[: re.search("(?m)^[^#]", text).start()])  # type: ignore[union-attr]


def example(name: str) -> str:
    """The file of a user that extends it, as its comment shows it."""
    return dedent("".join(re.findall(r"(?m)^ {2}.*\n", comment(name))))


def system(name: str, tmp_path: Path) -> System:
    """The system of its example."""
    file = tmp_path / f"{name}.yaml"
    file.write_text(example(name), encoding="utf-8")
    [found] = load_systems([file], BUILTIN_FORMATS).values()
    return found


def section(name: str) -> Iterator[str]:
    """What the page of the systems says of one, made of its comment."""
    prose = comment(name).partition("\n  ")[0].strip()
    yield f"## {name}\n"
    for paragraph in re.split(r"\n(?=Set: |Mind: )|\n\n", prose):
        yield re.sub("^(Set|Mind):", r"**\1:**", paragraph) + "\n"
    yield f"```yaml\n{example(name)}```\n"


def page() -> str:
    """The page as it should be: what a person wrote, and a section for each system."""
    written = SYSTEMS_PAGE.read_text(encoding="utf-8").partition(GENERATED)[0]
    return f"{written}{GENERATED}\n" + "\n".join(line for name in SHIPPED for line in section(name))


def test_the_page_says_what_the_files_say() -> None:
    """Where it fails: python tests/test_shipped_systems.py."""
    assert SYSTEMS_PAGE.read_text(encoding="utf-8") == page()


def test_each_system_has_a_row_of_what_was_tried() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|", SYSTEMS_PAGE.read_text(encoding="utf-8"))
    assert rows == list(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_user_s_file_needs_ten_lines(name: str, tmp_path: Path) -> None:
    """It says what trains, and for one node and for four how."""
    found = system(name, tmp_path)
    assert example(name).startswith(f"extends: {name}\nmodel: ")
    assert {"1n8g", "4n8g"} <= {str(case.topology) for case in found.cases}
    assert found.launch is not None


if __name__ == "__main__":
    SYSTEMS_PAGE.write_text(page(), encoding="utf-8")

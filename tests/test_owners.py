"""Who to ask about a system, by the CODEOWNERS of its checkout."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import results_makers as make
from explained import moved_case
from msgspec.structs import replace
from nights import Nights
from suites import Suite

from pytest_dlperf.files.checkouts import owners_of
from pytest_dlperf.night.night import night_of

FILES = ("bench/systems/gpt.yaml", "bench/systems/old/bert.yaml", "resnet.yaml")


def checkout(folder: Path, lines: str, place: str = ".github/CODEOWNERS") -> dict[str, str]:
    """Return the owners of the files by their place in a new checkout, joined."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)  # noqa: S607 - the user's git
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text(lines, encoding="utf-8")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    found = {name: " ".join(owners_of(folder / name)) for name in FILES}
    return {name: names for name, names in found.items() if names}


@pytest.mark.parametrize(
    ("rule", "owned"),
    [
        ("* @lab", FILES),
        ("*.yaml @lab", FILES),
        ("/*.yaml @lab", FILES[2:]),
        ("gpt.yaml @lab", FILES[:1]),
        ("bench/ @lab", FILES[:2]),
        ("systems/ @lab", FILES[:2]),
        ("/bench/systems/* @lab", FILES[:1]),
        ("bench/**/*.yaml @lab", FILES[:2]),
        ("**/old/ @lab", FILES[1:2]),
        ("/systems/ @lab", ()),
        ("gpt @lab", ()),
        ("# * @lab", ()),
        ("[section] @lab", ()),
    ],
)
def test_a_pattern_owns_files(tmp_path: Path, rule: str, owned: tuple[str, ...]) -> None:
    assert checkout(tmp_path, rule) == dict.fromkeys(owned, "@lab")


def test_the_last_pattern_counts_and_may_take_owners_away(tmp_path: Path) -> None:
    rules = "* @lab\n/bench/ @ana @bo # both\nold/\n"
    assert checkout(tmp_path, rules, "CODEOWNERS") == {FILES[0]: "@ana @bo", FILES[2]: "@lab"}


def test_no_checkout_has_no_owners(tmp_path: Path) -> None:
    assert owners_of(tmp_path / "gpt.yaml") == ()


def test_an_entry_says_who_to_ask() -> None:
    results = make.session(moved_case("paddle-resnet50-fp32-b1-4n8g", -9.9))
    results = replace(results, owners={"paddle-resnet50": ("@lab/speed", "ana@example.org")})
    (entry,) = night_of(results).bad
    assert str(entry.owners) == "ask @lab/speed, ana@example.org"


@pytest.mark.in_process
def test_a_failure_says_who_to_ask_and_the_next_good_night_that_it_passes_again(
    suite: Suite,
) -> None:
    subprocess.run(["git", "init", "-q", str(suite.path)], check=True)  # noqa: S607 - the user's git
    (suite.path / "CODEOWNERS").write_text("own.yaml @lab/speed\n", encoding="utf-8")
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("accepted"))

    def night(name: str, level: float = 1.0) -> pytest.RunResult:
        arguments = nights.usual(name, of_1n1g=level)
        result = suite.run(*arguments, "--dlperf-history", "history.sqlite3")
        time.sleep(1.01 - time.time() % 1)  # sessions are told apart by the second
        return result

    night("first")
    red = night("slow", 0.7)
    red.stdout.fnmatch_lines(["regressed -* tonight: throughput*", "  ask        @lab/speed"])

    green = night("good")
    assert green.ret == 0
    green.stdout.fnmatch_lines(
        ["the only case passes again", "passes again, was red since *: tiny-mlp-fp32-b4-1n1g"]
    )
    night("as good").stdout.no_fnmatch_line("*passes again*")

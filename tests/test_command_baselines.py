"""``pytest-dlperf baselines``: entries are shown by the ids of their cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dlperf.command.main import main

SPEED = "  throughput: {unit: images/s, better: higher}\n"
MEMORY = "  peak_memory: {unit: MB, better: lower}\n"


def head(name: str, metrics: str = SPEED + MEMORY) -> str:
    """What stands in front of a file's entries."""
    return f"system: {name}  # ours\nmetrics:\n{metrics}estimator: steady\nentries:\n"


ENTRIES = """\
  # the paper's batch
  fp32-b128:
    1n1g:
      throughput: 352.72
    1n8g:  # eight
      throughput: 2626
      peak_memory: {accepted: 13000, tolerance_percent: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster with the same entries of two systems."""
    folder = tmp_path / "baselines" / "mine"
    folder.mkdir(parents=True)
    (folder / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
    for name in ("a-x", "b-x"):
        (folder / f"{name}.yaml").write_text(head(name) + ENTRIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def show(*arguments: str) -> int:
    return main(["baselines", "show", *arguments, "--cluster", "mine"])


def test_numbers_are_shown_with_who_accepted_them(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = (folder / "a-x.yaml").read_text(encoding="utf-8")
    # As a person writes it: what is not known is left out.
    acceptance = 'acceptance: {at: "2026-11-03T02:00:00Z", by: "Ana\\e[31m", reason: new loader}'
    (folder / "a-x.yaml").write_text(f"{text}      {acceptance}\n", encoding="utf-8")

    assert show("a-x-*") == 0

    assert capsys.readouterr().out.splitlines() == [
        "a-x-fp32-b128-1n1g",
        "  throughput 352.72 images/s",
        "a-x-fp32-b128-1n8g",
        r"  throughput 2626.00 images/s, accepted by Ana\x1b[31m on Tuesday 2026-11-03: new loader",
        r"  peak_memory 13000 MB, accepted by Ana\x1b[31m on Tuesday 2026-11-03: new loader",
    ]
    assert show("--metric", "peak_memory") == 0
    assert capsys.readouterr().out.count("MB") == 2


@pytest.mark.parametrize(
    ("case", "metric", "there_are"),
    [
        ("a-x-*", "peak_memry", "throughput, peak_memory; did you mean 'peak_memory'?"),
        ("a-x-fp32-b128-1n1g", "peak_memory", "throughput"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_metric_that_no_case_has_is_a_mistake(
    case: str, metric: str, there_are: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(case, "--metric", "throughput", "--metric", metric) == 2

    told = f"--metric {metric}: these cases have no such metric; they have {there_are}\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (["a-x-fp32-b128-1n1g", "a-x-fp32-b128-2n8g"], "no entry 'a-x-fp32-b128-2n8g'; did you"),
        (["*-4n8g"], "no entry '*-4n8g'; * stands for anything"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_case_without_entry_is_a_mistake(
    cases: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(*cases) == 2

    assert f"cluster mine has {message}" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_cluster_that_there_is_not_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baselines", "show", "a", "--cluster", "yours"]) == 2

    assert "there is no cluster 'yours'" in capsys.readouterr().err

"""``pytest-dlperf compare``: two results files side by side."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import subprocess
import sysconfig
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import browser
import pytest
from results_makers import measured_case, session, unmeasured_case

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint, RunStatus
from pytest_dlperf.model.statistics import median
from pytest_dlperf.results import comparison
from pytest_dlperf.results.comparison import compare_results, ratio_interval
from pytest_dlperf.results.encode import encode, write_json

if TYPE_CHECKING:
    from suites import Suite

    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

SCRIPT = Path(sysconfig.get_path("scripts")) / "pytest-dlperf"
ONE = "paddle-resnet50-fp32-b128-1n1g"
EIGHT = "paddle-resnet50-fp32-b128-1n8g"
BERT = "tensorflow-bert_base-fp16-b96-xla-2n8g"
OPTIONS = "pytorch-resnet50-fp32-b128-dali+workers8-1n4g"
EVEN = (0.99, 0.995, 1.0, 1.005, 1.01)
"""Five runs that differ by 0.8 %."""


def at(level: float, case_id: str = ONE, *, runs: int = 5, **more: object) -> CaseResult:
    """A case with runs around a level."""
    return measured_case(case_id, *(level * one for one in EVEN[:runs]), **more)  # type: ignore[arg-type]


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def compare(
    folder: pytest.Pytester, first: Results, second: Results, *arguments: str
) -> pytest.RunResult:
    for name, results in (("a.json", first), ("b.json", second)):
        write_json(folder.path / name, results)
    return folder.run(SCRIPT, "compare", "a.json", "b.json", *arguments)


def row(result: pytest.RunResult, case_id: str) -> tuple[str, list[str]]:
    """The word that a case got, and its figures."""
    at_line = next(k for k, line in enumerate(result.outlines) if line.startswith(f"{case_id} ("))
    word = result.outlines[at_line].partition(": ")[2]
    return word, re.split(r"\s{2,}", result.outlines[at_line + 1].strip())


def message(result: pytest.RunResult) -> str:
    assert result.ret == 2
    assert result.outlines == []
    [line] = result.errlines
    return line.removeprefix("pytest-dlperf compare: ")


# ---------------------------------------------------------------------- what is compared


def test_each_case_has_its_ratio_with_an_interval_and_a_word(folder: pytest.Pytester) -> None:
    result = compare(
        folder,
        session(at(350.0), at(2600.0, EIGHT, speedup=7.0), at(5000.0, BERT)),
        session(at(364.0), at(2470.0, EIGHT, speedup=6.3), at(5005.0, BERT), name="b" * 32),
    )

    assert result.ret == 0
    word, figures = row(result, ONE)
    assert word == "faster"
    assert figures[:4] == ["5, 5", "350.00", "364.00", "1.040"]
    low, high = map(float, figures[4].split(" to "))
    assert 1 < low < 1.04 < high < 1.06
    word, figures = row(result, EIGHT)
    assert (word, figures[3], figures[5]) == ("slower", "0.950", "0.900")
    assert row(result, BERT)[0] == "no difference seen"
    result.stdout.fnmatch_lines(
        [
            "3 cases compared: 1 faster, 1 slower, 1 no difference seen",
            "B/A is 0.996 in the geometric mean of 3 cases, 95 % interval 0.989 to 1.003",
        ]
    )


def test_slower_is_no_failure_for_it_is_no_gate(folder: pytest.Pytester) -> None:
    result = compare(folder, session(at(350.0)), session(at(35.0), name="b" * 32))
    assert row(result, ONE)[0] == "slower"
    assert result.ret == 0


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (5, 1), (2, 2), (2, 5)])
def test_too_few_runs_have_no_interval(folder: pytest.Pytester, ours: int, theirs: int) -> None:
    result = compare(
        folder, session(at(350.0, runs=ours)), session(at(700.0, runs=theirs), name="b" * 32)
    )
    word, figures = row(result, ONE)
    assert word == "too few runs"
    assert figures[0] == f"{ours}, {theirs}"
    assert figures[4] == "-"
    result.stdout.fnmatch_lines(["An interval needs 3 runs on both sides."])


@pytest.mark.parametrize(
    ("deviations", "counts", "strays"),
    [
        ((0.01, 0.01), (5, 5), 0.0),
        ((0.01, 0.01), (3, 10), 0.1),
        ((0.03, 0.01), (3, 9), 0.0),
        ((0.01, 0.01), (3, 3), 0.1),
        ((0.05, 0.05), (10, 10), 0.1),
    ],
)
def test_the_interval_holds_the_true_ratio_as_often_as_it_says(
    deviations: tuple[float, float], counts: tuple[int, int], strays: float
) -> None:
    """Also where one side is noisier, and where a tenth of the runs are accidents."""
    draw = random.Random(1)  # noqa: S311 - the same runs every time

    def runs(deviation: float, count: int) -> list[float]:
        return [
            draw.gauss(1, deviation) * (draw.uniform(0.7, 0.95) if draw.random() < strays else 1)
            for _ in range(count)
        ]

    held = 0
    for _ in range(1000):
        first, second = (runs(*one) for one in zip(deviations, counts, strict=True))
        reach = ratio_interval(first, second)
        assert reach is not None
        ratio = median(second) / median(first)
        held += ratio * reach[0] <= 1 <= ratio * reach[1]
    assert 930 <= held <= 995


def test_a_case_that_was_not_measured_whole_is_never_faster(folder: pytest.Pytester) -> None:
    result = compare(
        folder,
        session(at(350.0), at(2600.0, EIGHT)),
        session(at(350.0), at(5200.0, EIGHT, broken=[RunStatus.HUNG]), name="b" * 32),
    )
    word, figures = row(result, EIGHT)
    assert word == "broken runs"
    assert figures[0] == "5, 5 of 6"
    result.stdout.fnmatch_lines(["*geometric mean of 1 case, *"])


def test_a_case_that_lost_a_test_with_its_worker_was_not_measured_whole(
    folder: pytest.Pytester,
) -> None:
    lost = at(5200.0, EIGHT)
    lost.is_whole = False
    result = compare(
        folder,
        session(at(350.0), at(2600.0, EIGHT)),
        session(at(350.0), lost, name="b" * 32),
    )
    assert row(result, EIGHT)[0] == "broken runs"


def test_what_cannot_be_compared_is_listed_with_what_each_side_says(
    folder: pytest.Pytester,
) -> None:
    result = compare(
        folder,
        session(at(350.0), at(2600.0, EIGHT), at(5.0, BERT), at(9.0, OPTIONS)),
        session(
            at(350.0),
            unmeasured_case(EIGHT, Verdict.SKIPPED, "no hosts"),
            at(5.0, BERT, unit="sentences/s"),
            at(9.0, "paddle-arcface_r50-fp32-b64-1n1g"),
            name="b" * 32,
        ),
    )
    result.stdout.fnmatch_lines(
        [
            "1 case compared: 1 no difference seen",
            "1 case not compared (A: measured, B: skipped)",
            f"  {EIGHT}",
            "1 case not compared (A: in images/s, B: in sentences/s)",
            f"  {BERT}",
            "1 case only in A",
            f"  {OPTIONS}",
            "1 case only in B",
            "  paddle-arcface_r50-fp32-b64-1n1g",
        ]
    )


def test_what_else_differs_is_listed(folder: pytest.Pytester) -> None:
    def side(torch: str, cuda: str) -> CaseResult:
        taken_on = Fingerprint(machine={"device": "V100"}, software={"cuda": cuda, "torch": torch})
        return at(350.0, fingerprint=taken_on)

    result = compare(
        folder,
        session(side("2.12", "11.8"), cluster="office"),
        session(
            side("2.13", "11.8"),
            cluster="cloud",
            name="b" * 32,
            environment={"host": "pc", "python": "3.12.1", "packages": {"torch": "2.13"}},
        ),
    )
    at_line = result.outlines.index("what else differs  A: a.json  B: b.json")
    assert [line.split("  ")[0] for line in result.outlines[at_line + 1 : at_line + 4]] == [
        "cluster", "pytest's python", "torch",
    ]  # fmt: skip
    result.stdout.fnmatch_lines(["cluster * office * cloud", "torch * 2.12 * 2.13"])
    result.stdout.no_fnmatch_line("cuda*")
    result.stdout.no_fnmatch_line("device*")


def with_runs(file: Path, *throughputs: float) -> None:
    """Write these into the file's first case: no session would."""
    plain = json.loads(file.read_text(encoding="utf-8"))
    for run, throughput in zip(plain["cases"][0]["runs"], throughputs, strict=True):
        run["throughput"] = throughput
    file.write_text(json.dumps(plain), encoding="utf-8")


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ((1e308,) * 3, (1e308,) * 3, "A: runs of 1e+308 images/s, B: runs of 1e+308 *"),
        ((1e-320,) * 3, (1e308,) * 3, "A: runs of 1e-320 images/s, B: runs of 1e+308 *"),
        ((1.0, 1e-300, 1e300), (1.0, 1.0, 1.0), "A: runs of 1e-300 to 1e+300 *, B: measured)"),
    ],
)
def test_runs_that_no_ratio_can_be_made_of_are_left_out(
    folder: pytest.Pytester, ours: tuple[float, ...], theirs: tuple[float, ...], said: str
) -> None:
    first, second = (
        session(at(1.0, runs=3), at(5.0, EIGHT)),
        session(at(1.0, runs=3), at(6.0, EIGHT)),
    )
    for name, results in (("a.json", first), ("b.json", replace(second, session="b" * 32))):
        write_json(folder.path / name, results)
    with_runs(folder.path / "a.json", *ours)
    with_runs(folder.path / "b.json", *theirs)

    result = folder.run(SCRIPT, "compare", "a.json", "b.json")

    assert result.ret == 0
    assert result.errlines == []
    result.stdout.fnmatch_lines([f"1 case not compared ({said}", f"  {ONE}"])
    assert row(result, EIGHT)[1][3] == "1.200"
    assert not re.search(r"\b(inf|nan)\b", result.stdout.str())


def test_enormous_numbers_take_no_more_room_than_others(folder: pytest.Pytester) -> None:
    result = compare(folder, session(at(1e-50)), session(at(1e50), name="b" * 32))
    assert row(result, ONE)[1][1:4] == ["1e-50", "1e+50", "1e+100"]
    assert max(map(len, result.outlines)) <= 80


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_an_interval_comes_with_what_it_does_not_know(folder: pytest.Pytester, form: str) -> None:
    """Two nights differ by more than runs do, and a comparison cannot see by how much."""
    result = compare(
        folder, session(at(350.0)), session(at(351.0), name="b" * 32),
        "--markdown", "it.markdown", "--html", "it.html",
    )  # fmt: skip
    if form == "terminal":
        text = result.stdout.str()
    else:
        text = (folder.path / f"it.{form}").read_text(encoding="utf-8")
    text = " ".join(text.split())
    assert "knows how much single runs differ, and nothing of how nights and hosts do" in text
    assert "pytest-dlperf history show" in text
    assert "control arm" in text


def test_cases_of_a_training_stand_in_a_row_in_the_order_of_their_devices(
    folder: pytest.Pytester,
) -> None:
    ids = [
        EIGHT.replace("1n8g", "4n8g"), BERT, EIGHT, EIGHT.replace("b128", "b96"), ONE,
        EIGHT.replace("1n8g", "10n8g"),
    ]  # fmt: skip
    result = compare(
        folder,
        session(*(at(350.0, case_id) for case_id in ids)),
        session(*(at(350.0, case_id) for case_id in reversed(ids)), name="b" * 32),
    )
    shown = [line.split(" ")[0] for line in result.outlines if " (images/s): " in line]
    assert shown == [ids[3], ONE, EIGHT, ids[0], ids[5], BERT]


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_slower_cases_are_named_the_slowest_first(folder: pytest.Pytester, form: str) -> None:
    four = EIGHT.replace("1n8g", "4n8g")
    result = compare(
        folder,
        session(at(1.0), at(1.0, EIGHT), at(1.0, four), at(1.0, BERT, runs=2)),
        session(at(0.9), at(1.2, EIGHT), at(0.8, four), at(0.1, BERT, runs=2), name="b" * 32),
        "--markdown", "it.markdown", "--html", "it.html",
    )  # fmt: skip
    text = (
        "\n".join(result.outlines)
        if form == "terminal"
        else (folder.path / f"it.{form}").read_text(encoding="utf-8")
    )
    told = re.split("slower, the slowest first", text, flags=re.IGNORECASE)[1]
    assert told.index("0.800 (") < told.index("0.900 (")
    named = re.findall(r"[a-z][\w+-]*-\dn\dg", re.split("The interval|unit", told)[0])
    assert named[:2] == [four, ONE]
    assert BERT not in named


# -------------------------------------------------------------------- the geometric mean


@pytest.mark.parametrize(
    ("cases", "deviations", "counts", "strays"),
    [
        (3, (0.01, 0.01), (5, 5), 0.0),
        (10, (0.01, 0.01), (3, 3), 0.0),
        (10, (0.003, 0.03), (3, 10), 0.0),
        (10, (0.01, 0.01), (5, 5), 0.1),
    ],
)
def test_the_interval_of_the_mean_holds_the_true_one_as_often_as_it_says(
    cases: int, deviations: tuple[float, float], counts: tuple[int, int], strays: float
) -> None:
    draw = random.Random(2)  # noqa: S311 - the same runs every time
    ids = [f"paddle-resnet50-fp32-b128-{nodes}n8g" for nodes in range(1, cases + 1)]

    def side(deviation: float, count: int, name: str) -> Results:
        def run() -> float:
            slow = draw.uniform(0.7, 0.95) if draw.random() < strays else 1
            return 1000 * slow * draw.gauss(1, deviation)

        return session(
            *(measured_case(case_id, *(run() for _ in range(count))) for case_id in ids),
            name=name * 32,
        )

    held = 0
    for _ in range(300):
        sides = [side(*one) for one in zip(deviations, counts, "ab", strict=True)]
        mean = compare_results(*sides).mean_ratio
        assert mean is not None
        assert mean.cases == cases
        held += mean.interval[0] <= 1 <= mean.interval[1]
    assert 275 <= held <= 300


def test_the_mean_is_of_cases_with_an_interval(folder: pytest.Pytester) -> None:
    first = session(at(1.0), at(1.0, EIGHT), at(1.0, BERT, runs=2))
    second = session(at(1.1), at(1.1, EIGHT), at(9.0, BERT, runs=2), name="b" * 32)
    result = compare(folder, first, second)
    result.stdout.fnmatch_lines(
        [
            "B/A is 1.100 in the geometric mean of 2 cases, 95 % interval 1.0?? to 1.1??",
            "The interval of the geometric mean * holds for*",
        ]
    )


def test_there_is_no_mean_where_no_case_has_an_interval(folder: pytest.Pytester) -> None:
    result = compare(folder, session(at(1.0, runs=2)), session(at(1.1, runs=2), name="b" * 32))
    result.stdout.no_fnmatch_line("*geometric*")


def test_the_least_number_of_runs_is_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ratio_interval(EVEN[:3], EVEN) is not None
    monkeypatch.setattr(comparison, "MIN_RUNS", 4)
    assert ratio_interval(EVEN[:3], EVEN) is None
    assert ratio_interval(EVEN, EVEN[:3]) is None
    assert ratio_interval(EVEN[:4], EVEN[:4]) is not None


def test_runs_that_agree_on_nothing_have_an_endless_interval() -> None:
    reach = ratio_interval((1e-59, 1e-59, 1e59), EVEN)
    assert reach is not None
    assert reach[1] >= 1e59


def test_real_sessions_are_compared(suite: Suite) -> None:
    from nights import Nights

    nights = Nights(suite)
    for name, factor in (("first", 1.0), ("second", 1.2)):
        suite.judge(*nights.usual(name, of_1n1g=factor, of_1n2g=factor), cluster="local")
        (suite.path / "results.json").rename(suite.path / f"{name}.json")

    result = suite.pytester.run(SCRIPT, "compare", "first.json", "second.json")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 cases compared: 2 faster", "B/A is 1.2* of 2 cases, *"])


# ------------------------------------------------------------------------------ misuse


def test_different_estimators_are_refused(folder: pytest.Pytester) -> None:
    other = session(
        at(350.0, estimator=Estimator.PUBLISHED), estimator=Estimator.PUBLISHED, name="b" * 32
    )
    told = message(compare(folder, session(at(350.0)), other))
    assert told.startswith("A has numbers of the estimator 'steady', B of 'published'; ")


def test_no_common_case_is_refused(folder: pytest.Pytester) -> None:
    told = message(compare(folder, session(at(1.0)), session(at(1.0, BERT), name="b" * 32)))
    assert told == f"A and B have no case in common: A has {ONE}, B has {BERT}"


def test_nothing_measured_on_both_sides_is_refused(folder: pytest.Pytester) -> None:
    skipped = session(unmeasured_case(ONE, Verdict.SKIPPED, "no hosts"), name="b" * 32)
    told = message(compare(folder, session(at(1.0)), skipped))
    assert told == (
        f"no case of A and B has runs in both that can be compared: {ONE} (A: measured, B: skipped)"
    )


def test_the_same_file_twice_is_compared_and_told(folder: pytest.Pytester) -> None:
    result = compare(folder, session(at(350.0)), session(at(350.0)))
    assert row(result, ONE)[1][3] == "1.000"
    result.stdout.fnmatch_lines(["Both files are of one session: there is nothing to differ."])
    assert result.ret == 0


def test_an_interrupted_session_is_told(folder: pytest.Pytester) -> None:
    half = replace(session(at(350.0), name="b" * 32), interrupted=True)
    result = compare(folder, session(at(350.0)), half)
    result.stdout.fnmatch_lines(["The session of B was interrupted: *"])


def test_a_file_that_cannot_be_read_is_named_with_the_place(folder: pytest.Pytester) -> None:
    plain = encode(session(at(350.0)))
    (folder.path / "a.json").write_text(json.dumps(plain), encoding="utf-8")
    plain["cases"][0]["runs"][0]["throughput"] = "fast"
    (folder.path / "b.json").write_text(json.dumps(plain), encoding="utf-8")
    told = message(folder.run(SCRIPT, "compare", "a.json", "b.json"))
    assert told == 'b.json: $.cases[0].runs[0].throughput: found "fast"; allowed: number or null'
    told = message(folder.run(SCRIPT, "compare", "none.json", "b.json"))
    assert told.startswith("none.json: cannot be read: ")


@pytest.mark.parametrize("option", ["--markdown", "--html"])
def test_a_report_that_cannot_be_written_is_misuse(folder: pytest.Pytester, option: str) -> None:
    (folder.path / "file").touch()
    told = message(compare(folder, session(at(1.0)), session(at(1.0)), option, "file/report"))
    assert told.startswith(f"{option}: file/report: ")


@pytest.mark.parametrize("option", ["--markdown", "--html"])
@pytest.mark.parametrize("name", ["b.json", "./sub/../a.json", "link.json"])
def test_a_report_never_takes_the_place_of_what_is_compared(
    folder: pytest.Pytester, option: str, name: str
) -> None:
    (folder.path / "sub").mkdir()
    (folder.path / "link.json").symlink_to("b.json")
    told = message(compare(folder, session(at(1.0)), session(at(1.0)), option, name))
    letter = "A" if "a.json" in name else "B"
    assert told == f"{option}: {name} is {letter}, which would be lost; name another file"
    for file in ("a.json", "b.json"):
        assert json.loads((folder.path / file).read_text(encoding="utf-8"))["schema"] == 1


def test_two_reports_with_one_file_are_refused(folder: pytest.Pytester) -> None:
    told = message(
        compare(folder, session(at(1.0)), session(at(1.0)), "--markdown", "c", "--html", "./c")
    )
    assert (
        told == "--html: ./c is the file of --markdown too, which would be lost; name another file"
    )
    assert not (folder.path / "c").exists()


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("a\nb", "*what cannot be shown in one line*"),
        ("\x1b[31mred", "*what cannot be shown in one line*"),
        (" ", "*it is empty*"),
        ("x" * 41, "*it has 41 characters; 40 are the most*"),
    ],
)
def test_labels_are_short_and_of_one_line(folder: pytest.Pytester, label: str, said: str) -> None:
    result = compare(folder, session(at(1.0)), session(at(1.0)), "--label-b", label)
    assert result.ret == 2
    result.stderr.fnmatch_lines([said])
    assert "\x1b" not in result.stderr.str()


# ---------------------------------------------------------------------- how it is shown


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_the_sides_are_called_by_their_labels(folder: pytest.Pytester, form: str) -> None:
    result = compare(
        folder, session(at(350.0)), session(at(364.0), cluster="cloud", name="b" * 32),
        "--label-a", "torch 2.12", "--label-b", "torch 2.13",
        "--markdown", "it.markdown", "--html", "it.html",
    )  # fmt: skip
    if form == "terminal":
        result.stdout.fnmatch_lines(
            [
                "A  torch 2.12: a.json, cluster office, 2026-11-20 22:00, steady",
                "B  torch 2.13: b.json, cluster cloud, 2026-11-20 22:00, steady",
                " * A: torch 2.12  B: torch 2.13 *",
                "what else differs  A: torch 2.12  B: torch 2.13",
            ]
        )
        return
    text = (folder.path / f"it.{form}").read_text(encoding="utf-8")
    assert "torch 2.13 (B) compared with torch 2.12 (A)" in text
    # What they are, the cases, what else differs.
    assert len(re.findall(r"(?:\| |<th[^>]*>)B: torch 2.13(?: *\||</th>)", text)) == 3
    assert "a.json" in text


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_the_reports_say_what_either_session_is(folder: pytest.Pytester, form: str) -> None:
    origin = {"commit": "4f1c09d2a6be", "ci_run": "https://ci.example.org/runs/811"}
    compare(
        folder,
        session(at(350.0), environment=origin),
        session(at(350.0), cluster="cloud", name="b" * 32),
        "--markdown", "it.markdown", "--html", "it.html",
    )  # fmt: skip
    text = (folder.path / f"it.{form}").read_text(encoding="utf-8")
    rows = [re.sub(r"<[^>]*>|[|` ]+", " ", line).split() for line in text.splitlines()]
    for row in (
        ["file", "a.json", "b.json"],
        ["cluster", "office", "cloud"],
        ["session", "a" * 32, "b" * 32],
        ["commit", "4f1c09d2a6be", "-"],
        ["CI", "run", "https://ci.example.org/runs/811", "-"],
    ):
        assert row in rows
    assert ["started", *["2026-11-20", "22:00"] * 2] in rows
    assert "href" not in text.replace('href="#content"', "")


def test_files_of_one_name_are_told_by_their_paths(folder: pytest.Pytester) -> None:
    for name in ("old", "new"):
        (folder.path / name).mkdir()
        write_json(folder.path / name / "r.json", session(at(1.0), name=name[0] * 32))
    result = folder.run(SCRIPT, "compare", "old/r.json", "new/r.json")
    result.stdout.fnmatch_lines(["A  old/r.json: cluster *", "B  new/r.json: cluster *"])


def test_names_without_room_leave_the_letters(folder: pytest.Pytester) -> None:
    label = "the one with the long name of all of us"
    result = compare(folder, session(at(1.0)), session(at(1.0)), "--label-a", label)
    assert max(map(len, result.outlines)) <= 80
    assert any(line.split()[:4] == ["runs", "A", "B", "B/A"] for line in result.outlines)
    result.stdout.fnmatch_lines([f"A  {label}: a.json, *"])


def test_no_line_is_a_command_to_what_runs_the_session(folder: pytest.Pytester) -> None:
    """Neither where it begins nor where a long one was broken."""
    command = "::error::it is broken"
    cluster = f"{'x' * 70} {command} ##[error]no"
    result = compare(
        folder,
        session(at(1.0), cluster=cluster, environment={"commit": command, "ci_run": "##[error]"}),
        session(at(1.0), cluster=command, name="b" * 32),
        "--label-a", command, "--label-b", "##[error]no",
    )  # fmt: skip
    assert result.ret == 0
    assert command in result.stdout.str()
    assert not [line for line in result.outlines if line.lstrip().startswith("::")]
    assert "##[" not in result.stdout.str()


def test_the_version_is_told(folder: pytest.Pytester) -> None:
    result = folder.run(SCRIPT, "--version")
    assert result.ret == 0
    assert result.outlines == [f"pytest-dlperf {metadata.version('pytest-dlperf')}"]


def test_it_is_readable_at_80_columns_and_a_table_where_there_is_room(
    folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = session(
        at(148_000.25, BERT, speedup=14.0),
        at(9000.0, OPTIONS),
        at(1.0, ONE, runs=1),
        at(1.0, EIGHT),
        cluster="the third of the old ones in the cellar of the institute",
    )
    second = session(
        at(149_000.25, BERT, speedup=15.0),
        at(9000.0, OPTIONS, broken=[RunStatus.HUNG] * 5),
        at(1.0, ONE, runs=1),
        at(2.0, EIGHT),
        name="b" * 32,
    )
    narrow = compare(folder, first, second)
    assert max(map(len, narrow.outlines)) <= 80
    assert "\033" not in narrow.stdout.str()

    monkeypatch.setenv("COLUMNS", "160")
    wide = compare(folder, first, second)
    [line] = [line for line in wide.outlines if line.startswith(BERT)]
    assert line.endswith("no difference seen")


def test_colours_are_for_terminals(
    folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    compare(folder, session(at(350.0)), session(at(300.0), name="b" * 32))
    controller, terminal = pty.openpty()
    subprocess.run([SCRIPT, "compare", "a.json", "b.json"], stdout=terminal, check=True)
    os.close(terminal)
    shown = os.read(controller, 1 << 16).decode()
    os.close(controller)
    assert "\033[31mslower\033[0m" in shown


HOSTILE = "<script>alert(1)</script>|\n# heading\x1b[31m \ud800 @somebody"


def hostile_side(name: str, level: float) -> Results:
    taken_on = Fingerprint(software={HOSTILE: f"{HOSTILE}{name}"})
    return session(
        at(level, unit=HOSTILE, fingerprint=taken_on), cluster=HOSTILE + name, name=name * 32
    )


def test_names_that_look_like_markup_are_shown_and_do_nothing(folder: pytest.Pytester) -> None:
    result = compare(
        folder,
        hostile_side("a", 1.0),
        hostile_side("b", 1.1),
        "--markdown",
        "c.md",
        "--html",
        "c.html",
    )
    assert result.ret == 0
    assert "\x1b" not in result.stdout.str()
    assert not [line for line in result.outlines if line.startswith("# heading")]
    markdown = (folder.path / "c.md").read_text(encoding="utf-8")
    page = (folder.path / "c.html").read_text(encoding="utf-8")
    for text in (markdown, page):
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "script" in text
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {10, 4}
    assert "\n# heading" not in markdown


def test_markdown_and_the_page_say_what_the_terminal_says(folder: pytest.Pytester) -> None:
    result = compare(
        folder,
        session(at(350.0), at(2600.0, EIGHT), at(1.0, OPTIONS)),
        session(at(364.0), at(2470.0, EIGHT), at(1.0, BERT), cluster="cloud", name="b" * 32),
        "--markdown", "new/c.md", "--html", "new/c.html",
    )  # fmt: skip
    assert result.ret == 0
    markdown = (folder.path / "new" / "c.md").read_text(encoding="utf-8")
    page = (folder.path / "new" / "c.html").read_text(encoding="utf-8")
    for text in (markdown, page):
        assert "2 cases compared: 1 faster, 1 slower" in text
        assert "B/A is 0.994 in the geometric mean of 2 cases" in text
        for case_id in (ONE, EIGHT, OPTIONS, BERT):
            assert case_id in text
        for figure in ("350.00", "364.00", "1.040", *row(result, ONE)[1][4:5]):
            assert figure in text
        assert "1 case only in B" in text
    assert f"| `{ONE}`" in markdown
    # A picture for each case, told in words too, and nothing that has to be loaded.
    assert page.count('role="img"') == 2
    assert 'aria-label="B/A 1.040, 95 % interval ' in page
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page


@pytest.mark.browser
@browser.needs_chromium
def test_the_page_opens_in_a_browser(folder: pytest.Pytester) -> None:
    compare(folder, hostile_side("a", 1.0), hostile_side("b", 1.1), "--html", "c.html")
    with (
        browser.started() as chromium,
        browser.opened(chromium, folder.path / "c.html", width=500) as (page, seen),
    ):
        assert page.locator("h1").inner_text() == "b.json (B) compared with a.json (A)"
        assert page.locator("tr.row svg").count() == 1
        assert "<script>alert(1)</script>" in page.locator("main").inner_text()
        assert seen.nothing
        assert browser.width_beyond(page) <= 0


@pytest.mark.browser
@browser.needs_chromium
@pytest.mark.parametrize("width", [400, 700, 1000, 1250, 1400])
def test_the_page_shows_everything_at_every_width(folder: pytest.Pytester, width: int) -> None:
    compare(
        folder, session(at(9000.0, OPTIONS, speedup=7.0)),
        session(at(8000.0, OPTIONS, speedup=7.7), name="b" * 32),
        "--label-a", "x" * 40, "--html", "c.html",
    )  # fmt: skip
    with (
        browser.started() as chromium,
        browser.opened(chromium, folder.path / "c.html", width=width) as (page, _),
    ):
        assert browser.width_beyond(page) <= 0
        row = page.locator("tr.row")
        shown = row.inner_text()
        for text in (OPTIONS, "slower", "images/s", "5, 5", "9000.00", "8000.00", "0.889", "1.100"):
            assert text in shown
        for part in (row.locator("svg"), page.get_by_text("how many times as fast B is")):
            box = part.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width

"""The summary at the end of a session, as a reader sees it."""

from pathlib import Path

import pytest
from explained import moved_case
from msgspec.structs import replace
from nights import Nights
from results_makers import STARTED, decided, with_judgement
from test_night_cases import ID, result
from trainers import TinySystem

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import throughput
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.report.report import Note
from pytest_dlperf.report.terminal import counts_line, note_lines, summary_lines
from pytest_dlperf.results.file import read_results

GOLDEN = Path(__file__).parent / "data" / "summary.txt"


def lines(*results, width=160, verbosity=-1, strict=False):
    return [
        line.text
        for line in summary_lines(
            results, [], tonight=STARTED, width=width, verbosity=verbosity, strict=strict
        )
    ]


def rows(*results, width=160):
    """The rows of the cases without their head and what stands below them."""
    found = lines(*results, width=width, verbosity=0)
    return [line for line in found if line.startswith(ID[:7]) and " scaling: " not in line]


def test_a_row_has_all_numbers_of_its_metric():
    head, row, scaling, legend = found_lines(result(Verdict.PASS, speedup=Verdict.PASS))
    assert head.split() == [
        "case", "metric", "median", "reference", "diff", "spread", "mean", "runs", "verdict",
    ]  # fmt: skip
    assert row.split() == [
        ID, "throughput", "8781.78", "9000.00", "-2.4", "%", "2.8", "%", "8730.10", "3", "2", "pass"
    ]  # fmt: skip
    assert scaling.endswith("workers8, weak scaling:  4n8g 24.00 of 32 (75 %)")
    assert legend == "throughput in images/s"


def found_lines(*results, verbosity=0):
    """The lines of the summary; the legend, which stands below the table, is the last one."""
    found = lines(*results, width=160, verbosity=verbosity)
    return sorted(found, key=lambda line: " in images/s" in line or line.startswith("sees: "))


def test_the_loss_that_is_seen_is_a_column_and_explained():
    seen = result(Verdict.PASS)
    judged = decided(seen.judgements["throughput"], min_detectable_percent=5.3)
    head, row, *_, legend = found_lines(with_judgement(seen, judged))
    assert head.split()[5] == "sees"
    assert "5.3 %" in row
    assert legend == (
        "throughput in images/s; sees: the minimum detectable change (9 times out of 10)"
    )


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_table_keeps_to_the_terminal(width, verbosity):
    many = result(Verdict.REGRESSED, throughputs=tuple(8000.0 + n for n in range(30)))
    both = result(Verdict.ENVIRONMENT_SHIFT, speedup=Verdict.NO_BASELINE)
    found = lines(many, both, width=width, verbosity=verbosity)
    assert max(map(len, found)) <= width


def test_80_columns_have_what_matters_most():
    """Exactly this is printed of a loss, an odd case and one in order, where no failure is."""
    case_id = "tensorflow-bert_base-fp32-b64-{}"
    seen = result(Verdict.PASS, case_id=case_id.format("4n8g"), speedup=Verdict.PASS)
    judgement = decided(seen.judgements["throughput"], min_detectable_percent=5.3)
    some = [
        with_judgement(seen, judgement),
        moved_case(case_id.format("2n8g"), -9.9),
        result(Verdict.INVALID, case_id=case_id.format("1n8g"), throughputs=(8940.3, None)),
    ]
    printed = "\n".join(lines(*some, width=80, verbosity=0))
    assert printed == GOLDEN.read_text(encoding="utf-8").rstrip("\n")


def test_standing_notes_of_good_cases_are_for_the_verbose():
    good = result(Verdict.PASS)
    judgement = good.judgements["throughput"]
    noted = replace(judgement, notes=("it is new",), standing_notes=("as every night",))
    good = with_judgement(good, noted)
    quiet, verbose = (" ".join(found_lines(good, verbosity=level)) for level in (0, 1))
    assert "it is new" in quiet
    assert "as every night" not in quiet
    assert "as every night" in verbose


def test_the_worst_comes_first():
    order = [Verdict.PASS, Verdict.FAILED, Verdict.IMPROVED, Verdict.REGRESSED, Verdict.INVALID]
    assert [row.split()[-1] for row in rows(*map(result, order))] == [
        "failed", "invalid", "regressed", "improved", "pass",
    ]  # fmt: skip


def test_quiet_tells_what_is_not_good_and_very_quiet_nothing():
    some = [result(Verdict.PASS), result(Verdict.REGRESSED), result(Verdict.SKIPPED)]
    some[-1] = replace(some[-1], measurement=None)
    assert [line.split()[-1] for line in lines(*some)] == ["verdict", "regressed"]
    assert not lines(*some, verbosity=-2)


def test_a_reason_of_wide_and_odd_characters_stays_one_line():
    odd = result(Verdict.INVALID, throughputs=(8940.3, None))
    run = replace(odd.measurement.runs[1], reason="训练\x1b[31m\ttoo\u2028few\udc80")
    runs = (odd.measurement.runs[0], run)
    odd = replace(odd, measurement=replace(odd.measurement, runs=runs))
    told = "    run 2: 训练\\x1b[31m\\ttoo\\u2028few\\udc80"
    assert any(line.startswith(told) for line in lines(odd, verbosity=0))


def test_units_that_differ_stand_with_each_number_or_below():
    some = [result(Verdict.PASS), result(Verdict.PASS, memory=Verdict.REGRESSED)]
    head, memory, images = lines(*some, width=160, verbosity=0)[:3]
    assert head.split()[:4] == ["case", "metric", "median", "unit"]
    assert "MB" in memory.split()
    assert "images/s" not in memory
    narrow = lines(*some, width=90, verbosity=0)
    assert "throughput in images/s, peak_memory in MB" in [
        line.split("; ")[0] for line in narrow
    ] or any("MB" in line.split() for line in narrow), images


def test_a_case_that_lost_a_test_is_not_good():
    lost = result(Verdict.PASS)
    lost = replace(lost, is_whole=False)
    assert rows(lost)[0].endswith("  lost")
    line = counts_line([lost])
    assert line.text == "1 case: 1 lost"
    assert "red" in line.markup


def test_cases_that_were_never_reached_are_only_counted():
    some = [result(Verdict.PASS), *[CaseResult(case=Case.from_id(ID))] * 95]
    assert len(rows(*some)) == 1
    line = counts_line(some)
    assert line.text == "96 cases: 95 not judged, 1 pass"
    assert "yellow" in line.markup


def test_cases_are_counted_by_verdict():
    verdicts = [Verdict.PASS] * 3 + [Verdict.REGRESSED, Verdict.NO_BASELINE, Verdict.IMPROVED]
    new = result(Verdict.PASS)
    new = with_judgement(new, replace(new.judgements["throughput"], recorded=True))
    line = counts_line([*map(result, verdicts), new])
    assert line.text == ("7 cases: 1 regressed, 1 no_baseline, 1 recorded, 1 improved, 3 pass")
    assert "red" in line.markup


def test_the_counts_say_what_made_the_session_fail():
    skipped = CaseResult(
        case=Case.from_id(ID),
        judgements={
            "throughput": Judgement(
                metric=throughput("images/s"), verdict=Verdict.SKIPPED, reason="no logs"
            )
        },
    )
    some = [result(Verdict.PASS), skipped]
    assert counts_line(some, strict=True).text == "2 cases: 1 skipped (failed: strict), 1 pass"
    notes = [Note("fine"), Note("nothing was measured: no logs", is_bad=True)]
    line = counts_line([skipped], notes)
    assert line.text == "1 case: 1 skipped; failed: nothing was measured"
    assert "red" in line.markup


def test_notes_are_wrapped_only_to_a_width():
    note = Note("one " * 30, is_bad=True)
    assert [line.text for line in note_lines([note])] == ["one " * 30]
    wrapped = [line.text for line in note_lines([note], width=60)]
    assert len(wrapped) == 3
    assert max(map(len, wrapped)) <= 60


def test_an_interrupted_session_is_never_green():
    line = counts_line([result(Verdict.PASS)] * 2, interrupted=True)
    assert line.text == "interrupted: 2 cases: 2 pass"
    assert "yellow" in line.markup
    assert "red" in counts_line([result(Verdict.REGRESSED)], interrupted=True).markup


def test_a_case_whose_speedup_was_not_reached_is_not_judged():
    half = result(Verdict.PASS)
    half = replace(half, unfinished=("speedup",))
    assert rows(half)[0].endswith("  not judged; 1 pass")
    assert counts_line([half]).text == "1 case: 1 not judged"
    half = result(Verdict.REGRESSED)
    half = replace(half, unfinished=("speedup",))
    assert [line.split()[-1] for line in lines(half)[1:]] == ["regressed", "judged"]


@pytest.mark.parametrize("value", [1e9, 1.797e308])
def test_an_absurd_number_is_short(value):
    for unit in ("images/s", "x", "MB", "%"):
        assert len(numbers.number(value, unit)) < 14
    for write in (numbers.percent, numbers.signed_percent):
        assert len(write(value)) < 14
    assert numbers.number(999_999_999.0, "images/s") == "999999999.00"


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (352.724, "images/s", "352.72 images/s"),
        (9.8765, "images/s", "9.877 images/s"),
        (0.0012345, "images/s", "0.001234 images/s"),
        (7.436, "x", "7.44 x"),
        (61234.4, "MB", "61234 MB"),
        (350.0, "ms", "350.0 ms"),
        (43.21, "ms", "43.21 ms"),
        (0.0123, "s", "0.0123 s"),
        (43.123, "%", "43.1 %"),
    ],
)
def test_a_number_has_the_digits_that_suit_its_unit(value, unit, written):
    assert numbers.quantity(value, unit) == written


def test_an_expected_failure_is_no_alarm_and_not_good_either():
    known = result(Verdict.REGRESSED, speedup=Verdict.PASS)
    known = with_judgement(known, replace(known.judgements["throughput"], excused=True))
    assert lines(known)[-1].endswith("  regressed, expected; 1 pass")
    line = counts_line([known, result(Verdict.PASS)])
    assert line.text == "2 cases: 1 expected, 1 pass"
    assert "yellow" in line.markup


@pytest.mark.parametrize("tiny", [-0.04, -1e-9, -0.0, 0.0, 0.04])
def test_a_difference_that_rounds_to_nothing_is_no_loss(tiny):
    assert numbers.signed_percent(tiny) == "+0.0 %"
    assert numbers.interval((tiny, -0.06)) == "+0.0 to -0.1 %"


def test_speedups_stand_beside_the_ideal_and_are_wrapped():
    topologies = {"4n8g": 26.5, "1n2g": 1.83, "1n4g": 3.85, "2n8g": 14.1}
    training = []
    for topology, speedup in topologies.items():
        case_id = f"paddle-resnet50-fp32-b128-{topology}"
        training.append(result(Verdict.PASS, case_id=case_id, throughputs=(speedup * 365.91,)))
    name = "paddle-resnet50-fp32-b128"
    told = [line for line in lines(*training, width=100, verbosity=0) if " of " in line]
    assert told == [
        f"{name}, weak scaling:  1n2g 1.83 of 2 (92 %)  1n4g 3.85 of 4 (96 %)",
        "         2n8g 14.10 of 16 (88 %)  4n8g 26.50 of 32 (83 %)",
    ]


def test_only_the_first_left_out_logs_are_listed():
    ignored = [IgnoredLog(f"{number}\n.log", "the reason") for number in range(30)]
    text = [line.text for line in summary_lines([], ignored, tonight="", width=80)]
    assert text[0] == "logs that were left out: 30"
    assert text[1] == r"  0\n.log: the reason"
    assert text[-1] == "  … and 10 more; --dlperf-json FILE has all of them"
    assert len(text) == 22


def test_the_summary_ends_with_the_counts(suite):
    TinySystem(suite)
    result = suite.run("-k", "throughput and tiny and 1n1g", "--dlperf-create-baselines")
    result.stdout.re_match_lines_random(
        [
            r"=+ dlperf: cluster local, steady =+$",
            r"tiny-mlp-fp32-b4-1n1g +throughput +400\.00 .* pass, recorded$",
        ]
    )
    result.stdout.re_match_lines([r"logs: ", r"1 case: 1 recorded$"])
    # A first number stands in the table of cases.
    result.stdout.no_re_match_line("case +metric +unit +old")


def test_a_failure_is_said_once_and_its_number_stands_before_the_name_of_its_test(
    suite, monkeypatch
):
    """The short summary is cut to the terminal, and names of cases are long."""
    monkeypatch.delenv("CI", raising=False)
    nights = Nights(suite)
    nights.accept(nights.numbers("first"))
    arguments = nights.usual("second", of_1n1g=0.8, of_1n2g=0.8)
    [log] = (suite.path / "nights" / "second" / "1n2g").glob("*_2.log")
    log.write_text("\n".join(log.read_text().splitlines()[:-6]))

    said = suite.run(*arguments, "--dlperf-cluster", "local")
    said.stdout.re_match_lines(
        [
            "=+ dlperf: ",
            r"1 of 2 cases got slower, -19.3 %; 1 has no valid number$",
            "case +metric",
        ],
        consecutive=True,
    )
    short = [line for line in said.outlines if line.startswith("FAILED ")]
    assert [line.partition("::")[0] for line in short] == [
        "FAILED (invalid) bench_tests/test_speedup.py",
        "FAILED (-19.3 %) bench_tests/test_throughput.py",
        "FAILED (invalid) bench_tests/test_throughput.py",
    ]
    assert said.stdout.str().count("too few steps") == 2  # two tests failed of it
    assert said.stdout.str().count("run 2: invalid") == 2
    without = suite.run(*arguments, "--dlperf-cluster", "local", "--tb=no")
    without.stdout.fnmatch_lines(["    run 2: * too few steps*"])


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        (["-k", "tiiny and 1n2g"], "-k: no test has 'tiiny' in its name; near: tiny"),
        (["-m", "dlperf(topology='9n9g')"], "-m: no case has topology='9n9g'; there are 1n1g, *"),
        (["-m", "dlperf(nodes='1')"], "-m: nodes is a number: write nodes=1"),
        (["-m", "dlperf(size=3)"], "-m: cases have no 'size'; they have system, framework, *"),
    ],
)
def test_a_selection_of_nothing_says_why(suite, selection, told):
    TinySystem(suite)
    result = suite.run(*selection)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines([told])
    assert "interrupted" not in result.stdout.str()


@pytest.mark.parametrize("arguments", [["--collect-only", "-q"], ["-v"]])
def test_a_selection_of_something_is_told_nothing(suite, arguments):
    TinySystem(suite)
    result = suite.run("-k", "tiny and 1n2g and throughput", "--dlperf-repeats", "1", *arguments)
    result.stdout.fnmatch_lines(["*[[]tiny-mlp-fp32-b4-1n2g]*"])
    result.stdout.no_fnmatch_line("-k: *")


@pytest.mark.parametrize("how", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_what_was_cut_short_says_so_in_all_reports(suite, how, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 3, "1n2g": [760.0] * 3})
    (suite.path / "bench_tests" / "conftest.py").write_text(
        "import pytest\n\n"
        "def pytest_collection_modifyitems(items):\n"
        "    items.reverse()\n\n"
        "def pytest_runtest_call(item):\n"
        "    if item.name.startswith('test_speedup'):\n"
        f"        {how}\n",
        encoding="utf-8",
    )

    result, results = suite.judge(
        *nights.night("tonight", {"1n1g": [400.0] * 3, "1n2g": [760.0] * 3}),
        "--dlperf-markdown", "page.md", "--dlperf-html", "page.html", cluster="local",
    )  # fmt: skip

    result.stdout.fnmatch_lines(["interrupted: 2 cases: 1 not judged, 1 pass"])
    said = "nterrupted: 1 of 2 cases passes; 1 was not judged"
    result.stdout.fnmatch_lines([f"::warning title=the session was interrupted::i{said}"])
    assert f"**I{said}.**" in (suite.path / "page.md").read_text(encoding="utf-8")
    page = (suite.path / "page.html").read_text(encoding="utf-8")
    assert "<h1>interrupted: " in page.lower()
    assert results["interrupted"] is True
    [two, one] = results["cases"]
    assert not one.get("unfinished")
    assert two["unfinished"] == ["speedup"]
    read = read_results(suite.path / "results.json")
    assert read.cases[0].unfinished == ("speedup",)


@pytest.mark.parametrize("width", ["60", "80"])
def test_remarks_keep_to_the_terminal(suite, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 3, "1n2g": [760.0] * 3})
    said = "the loss of throughput comes from"
    assert said not in suite.run(*nights.usual("green")).stdout.str()
    lines = suite.run(*nights.usual("tonight", of_1n1g=0.8, of_1n2g=0.8)).outlines
    at = next(place for place, line in enumerate(lines) if said in line)
    assert "every topology lost" in " ".join(" ".join(lines[at : at + 2]).split())
    assert max(map(len, lines[at : at + 2])) <= int(width)

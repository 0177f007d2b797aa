"""The summary at the end of a session, as a reader sees it."""

from pathlib import Path

import pytest
from explained import moved_case
from msgspec.structs import replace
from nights import Nights
from results_makers import (
    MEMORY,
    STARTED,
    baseline_of,
    decided,
    judged,
    unmeasured_case,
    with_judgement,
)
from trainers import TinySystem

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, throughput
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.report.remarks import absences, scaling
from pytest_dlperf.report.reports import Note
from pytest_dlperf.report.rows import broken_lines, case_rows, has_failure, row_facts
from pytest_dlperf.report.terminal import counts_line, note_lines, summary_lines
from pytest_dlperf.results.file import read_results

GOLDEN = Path(__file__).parent / "data" / "summary.txt"
ID = "pytorch-resnet50-fp32-b128-dali+workers8-4n8g"


def result(
    verdict,
    *,
    case_id=ID,
    throughputs=(8940.3, 8468.23, 8781.78),
    speedup=None,
    memory=None,
):
    """A case of three runs, of a throughput of 8781.78, a speedup of 24 and 14653 MB."""
    runs = tuple(
        Run(
            run=number,
            metrics={"throughput": value, "peak_memory": 14653.0} if value else {},
            status=RunStatus.OK if value else RunStatus.INVALID,
            reason=None if value else "too few\nsteps",
        )
        for number, value in enumerate(throughputs, 1)
    )
    case = Case.from_id(case_id)
    metrics = (throughput("images/s"), MEMORY)
    measurement = Measurement(
        case_id=case_id, metrics=metrics, estimator=Estimator.PUBLISHED, runs=runs
    )
    found = CaseResult(
        case=case,
        measurement=measurement,
        reference=None
        if case.reference is None
        else Measurement(
            case_id=case.reference.id,
            metrics=metrics[:1],
            estimator=Estimator.PUBLISHED,
            runs=(Run(run=1, metrics={"throughput": 365.91}, status=RunStatus.OK),),
        ),
        accepted={
            name: baseline_of(number)
            for name, number in (("throughput", 9000.0), ("speedup", 24.88))
        },
        judgements={
            "throughput": judged(
                verdict, measured=8781.78, accepted=9000.0, difference_percent=-2.42
            )
        },
    )
    if speedup is not None:
        by = judged(
            speedup, metric=SPEEDUP_METRIC, measured=24.0, accepted=24.88, difference_percent=-3.54
        )
        found = with_judgement(found, by)
    if memory is not None:
        by = judged(
            memory, metric=MEMORY, measured=14653.0, accepted=14212.0, difference_percent=3.1
        )
        found = with_judgement(found, by)
    return found


def lines(*results, width=160, verbosity=-1, strict=False):
    return [
        line.text
        for line in summary_lines(
            results, [], now=STARTED, width=width, verbosity=verbosity, strict=strict
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
    head, memory = lines(*some, width=160, verbosity=0)[:2]
    assert head.split()[:4] == ["case", "metric", "median", "unit"]
    assert "MB" in memory.split()
    assert "images/s" not in memory
    narrow = lines(*some, width=90, verbosity=0)
    assert "peak_memory in MB, throughput in images/s" in [line.split("; ")[0] for line in narrow]


def test_a_case_that_lost_a_test_is_not_good():
    lost = result(Verdict.PASS)
    lost = replace(lost, is_whole=False)
    assert rows(lost)[0].endswith("  lost")
    line = counts_line([lost])
    assert line.text == "1 case: 1 lost"
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
    known = with_judgement(known, replace(known.judgements["throughput"], expected="#812"))
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
    text = [line.text for line in summary_lines([], ignored, now="", width=80)]
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
    assert sorted(line.partition(" bench_tests/")[0] for line in short) == [
        "FAILED (-19.3 %)",
        "FAILED (invalid)",
        "FAILED (invalid)",
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


@pytest.mark.parametrize("how", ["raise KeyboardInterrupt", "pytest.exit('enough')"])
def test_what_was_cut_short_says_so_in_all_reports(suite, how, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    nights = Nights(suite)
    nights.accept({"1n1g": [400.0] * 3, "1n2g": [760.0] * 3})
    (suite.path / "bench_tests" / "conftest.py").write_text(
        "import pytest\n\n"
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
    [one, two] = results["cases"]
    assert not one.get("unfinished")
    assert two["unfinished"] == ["speedup"]
    read = read_results(suite.path / "results.json")
    assert read.cases[1].unfinished == ("speedup",)


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


def verdicts(found, *, every=False):
    """Metric and verdict of each row."""
    return [(row.metric, row.cells["verdict"]) for row in case_rows(found, every=every)]


def below(found, *, every=False, with_failures=True, strict=False):
    """What stands below the rows of a case: facts, then runs."""
    told = [
        row
        for row in case_rows(found, every=every)
        if with_failures or not has_failure(found, row, strict=strict)
    ]
    for fact in row_facts(found, told, STARTED, every=every):
        yield from (f"{fact.label} {text}" for text in fact.texts)
    yield from map(str, broken_lines(found) if told else ())


# rows


def test_each_metric_that_does_not_pass_has_a_row_and_the_worst_is_the_first():
    odd = result(Verdict.PASS, speedup=Verdict.NO_BASELINE, memory=Verdict.REGRESSED)
    assert verdicts(odd) == [("peak_memory", "regressed"), ("speedup", "no_baseline; 1 pass")]
    cells = case_rows(odd)[0].cells
    assert (cells["median"], cells["unit"], cells["reference"]) == ("14653", "MB", "14212")


def test_of_a_case_in_order_or_broken_as_a_whole_the_first_metric_stands_for_all():
    assert verdicts(result(Verdict.PASS, speedup=Verdict.PASS)) == [("throughput", "2 pass")]
    broken = result(Verdict.PASS, throughputs=(8940.3, None))
    for metric in (throughput("images/s"), SPEEDUP_METRIC, MEMORY):
        verdict = Judgement(metric=metric, verdict=Verdict.INVALID, reason="too few steps")
        broken = with_judgement(broken, verdict)
    assert verdicts(broken) == [("throughput", "3 invalid")]


def test_a_measured_case_without_a_verdict_says_so():
    assert verdicts(replace(result(Verdict.PASS), judgements={})) == [("throughput", "not judged")]


# what is below


def test_what_a_failure_says_is_said_again_only_where_there_is_none():
    """What passes in spite of its loss has no failure."""
    shift = moved_case("paddle-resnet50-fp32-b1-2n8g", -9.9, verdict=Verdict.ENVIRONMENT_SHIFT)
    assert not list(below(moved_case(ID, -9.9), with_failures=False))
    assert len(list(below(shift, with_failures=False))) > 2
    assert not list(below(shift, with_failures=False, strict=True))


def test_broken_runs_are_explained_in_a_line_that_others_cannot_forge():
    broken = result(Verdict.INVALID, throughputs=(8940.3, None))
    assert list(below(broken)) == ["run 2: too few steps"]


def test_the_rules_own_number_and_the_accepted_one_stand_below_others():
    """The rule may leave strays out, and the last sessions lie where they lie."""
    strayed = result(Verdict.PASS)
    judged = decided(
        strayed.judgements["throughput"],
        reference=8600.0,
        difference_percent=-0.5,
        interval_percent=(-1.0, 0.0),
    )
    strayed = with_judgement(strayed, judged)
    cells = case_rows(strayed)[0].cells
    assert [cells[name] for name in ("median", "reference", "diff")] == [
        "8781.78", "8600.00", "-0.5 %"
    ]  # fmt: skip
    compared, *_ = below(strayed, every=True)
    assert compared == "compared the runs that count lie at 8557.00"


# all cases


def test_scaling_names_its_kind_and_another_reference_topology():
    case = replace(
        Case.from_id("megatron-llama-bf16-gb128-s4096-tp2-4n8g"),
        reference_topology=Topology(1, 8),
    )
    [strong] = scaling([replace(result(Verdict.PASS), case=case)])
    assert str(strong.head) == "megatron-llama-bf16-gb128-s4096-tp2 over 1n8g, strong scaling:"
    assert [str(piece) for piece in strong.pieces] == ["4n8g 24.00 of 4 (600 %)"]


def test_skipped_cases_tell_each_reason_once():
    skipped = []
    for topology in ("1n1g", "4n8g"):
        case_id = f"pytorch-resnet50-fp32-b128-{topology}"
        reason = f"no logs of {case_id}; give DIR with {topology}/r50.log"
        skipped.append(unmeasured_case(case_id, Verdict.SKIPPED, reason))
    (told,) = absences(skipped, [Verdict.SKIPPED], most=1)
    first = skipped[0].case.id
    assert str(told) == (
        f"skipped: {first} and 1 more: no logs of {first}; give DIR with 1n1g/r50.log"
    )

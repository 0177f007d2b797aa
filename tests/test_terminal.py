"""The summary at the end of a session, as a reader sees it."""

from pathlib import Path

import pytest
import results_makers as make
from explained import moved_case
from msgspec.structs import replace
from nights import Nights
from results_makers import MEMORY, baseline_of, decided, judged, unmeasured_case, with_judgement
from trainers import TinySystem

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, throughput
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.report.overview import absences, scaling
from pytest_dlperf.report.reports import Note
from pytest_dlperf.report.tables import case_rows
from pytest_dlperf.report.terminal import note_lines, summary_lines
from pytest_dlperf.results.file import read_results

GOLDEN = Path(__file__).parent / "data" / "summary.txt"
ID = "pytorch-resnet50-fp32-b128-dali+workers8-4n8g"
ONE = "paddle-resnet50-fp32-b128-1n1g"


def result(verdict, *, case_id=ID, throughputs=(8940.3, 8468.23, 8781.78), **metrics):
    """A case of three runs: a throughput of 8781.78, a speedup of 24 and 14653 MB.

    ``metrics`` are verdicts of ``speedup`` and ``memory``.
    """
    runs = tuple(
        Run(
            run=number,
            metrics={"throughput": value, "peak_memory": 14653.0} if value else {},
            status=RunStatus.OK if value else RunStatus.INVALID,
            reason=None if value else "too few\nsteps",
        )
        for number, value in enumerate(throughputs, 1)
    )
    case, estimator = Case.from_id(case_id), Estimator.PUBLISHED
    known = (throughput("images/s"), MEMORY)
    over = case.reference and Measurement(
        case_id=case.reference.id,
        metrics=known[:1],
        estimator=estimator,
        runs=(Run(run=1, metrics={"throughput": 365.91}, status=RunStatus.OK),),
    )
    by = {
        "throughput": (verdict, throughput("images/s"), 8781.78, 9000.0, -2.42),
        "speedup": (metrics.get("speedup"), SPEEDUP_METRIC, 24.0, 24.88, -3.54),
        "peak_memory": (metrics.get("memory"), MEMORY, 14653.0, 14212.0, 3.1),
    }
    return CaseResult(
        case=case,
        measurement=Measurement(case_id=case_id, metrics=known, estimator=estimator, runs=runs),
        reference=over,
        accepted={"throughput": baseline_of(9000.0), "speedup": baseline_of(24.88)},
        judgements={
            name: judged(
                said, metric=metric, measured=value, accepted=old, difference_percent=percent
            )
            for name, (said, metric, value, old, percent) in by.items()
            if said is not None
        },
    )


def summary(*results, notes=(), width=160, verbosity=0, with_failures=True, **more):
    """The lines of a session's summary."""
    session = make.report(replace(make.session(*results), **more))
    return list(
        summary_lines(session, notes, width=width, verbosity=verbosity, with_failures=with_failures)
    )


def lines(*results, **how):
    """The texts of its table and what stands below it, without what the counts say."""
    return [line.text for line in summary(*results, **how)[:-1]]


def rows(*results):
    """The rows of the cases without their head and what stands below them."""
    return [line for line in lines(*results) if line.startswith(ID[:7]) and " scaling" not in line]


def counts(*results, **how):
    return summary(*results, **how)[-1]


def test_a_row_has_all_numbers_of_its_metric():
    head, row, legend, scaling = lines(result(Verdict.PASS, speedup=Verdict.PASS))
    assert head.split() == [
        "case", "metric", "median", "reference", "diff", "spread", "mean", "runs", "verdict",
    ]  # fmt: skip
    assert row.split() == [
        ID, "throughput", "8781.78", "9000.00", "-2.4", "%", "2.8", "%", "8730.10", "3", "2", "pass"
    ]  # fmt: skip
    assert scaling.endswith("workers8, weak scaling:  4n8g 24.00 of 32 (75 %)")
    assert legend == "throughput in images/s"


def test_the_loss_that_is_seen_is_a_column_and_explained():
    seen = result(Verdict.PASS)
    seen = with_judgement(seen, decided(seen.judgements["throughput"], min_detectable_percent=5.3))
    head, row, legend, *_ = lines(seen)
    assert head.split()[5] == "sees"
    assert "5.3 %" in row
    assert "; sees: the minimum detectable change" in legend


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
    printed = "\n".join(line.text for line in summary(*some, width=80))
    assert printed == GOLDEN.read_text(encoding="utf-8").rstrip("\n")


def test_the_worst_comes_first():
    order = [Verdict.PASS, Verdict.FAILED, Verdict.IMPROVED, Verdict.REGRESSED, Verdict.INVALID]
    assert [row.split()[-1] for row in rows(*map(result, order))] == [
        "failed", "invalid", "regressed", "improved", "pass",
    ]  # fmt: skip


def test_quiet_tells_what_is_not_good_and_very_quiet_nothing():
    some = [result(Verdict.PASS), result(Verdict.REGRESSED), result(Verdict.SKIPPED)]
    some[-1] = replace(some[-1], measurement=None)
    told = lines(*some, verbosity=-1)
    assert [line.split()[-1] for line in told] == ["verdict", "regressed"]
    assert not lines(*some, verbosity=-2)


def test_units_that_differ_stand_with_each_number_or_below():
    some = [result(Verdict.PASS), result(Verdict.PASS, memory=Verdict.REGRESSED)]
    _, head, memory, *_ = lines(*some)
    assert head.split()[:4] == ["case", "metric", "median", "unit"]
    assert "MB" in memory.split()
    assert "images/s" not in memory
    narrow = lines(*some, width=90)
    assert "peak_memory in MB, throughput in images/s" in [line.split("; ")[0] for line in narrow]


def test_the_counts_say_what_made_the_session_fail():
    skipped = unmeasured_case(ONE, Verdict.SKIPPED, "no logs")
    told = counts(result(Verdict.PASS), skipped, strict=True)
    assert told.text == "2 cases: 1 skipped (failed: strict), 1 pass"
    notes = [Note("fine"), Note("nothing was measured: no logs", is_bad=True)]
    line = counts(skipped, notes=notes)
    assert line.text == "1 case: 1 skipped; failed: nothing was measured"
    assert "red" in line.markup
    lost = replace(result(Verdict.PASS), is_whole=False)
    assert rows(lost)[0].endswith("  lost")
    assert counts(lost).text == "1 case: 1 lost"
    assert "red" in counts(lost).markup


def test_an_interrupted_session_is_never_green():
    line = counts(*[result(Verdict.PASS)] * 2, interrupted=True)
    assert line.text == "interrupted: 2 cases: 2 pass"
    assert "yellow" in line.markup
    assert "red" in counts(result(Verdict.REGRESSED), interrupted=True).markup


def test_notes_are_wrapped_only_to_a_width():
    note = Note("one " * 30, is_bad=True)
    assert [line.text for line in note_lines([note])] == ["one " * 30]
    wrapped = [line.text for line in note_lines([note], width=60)]
    assert len(wrapped) == 3
    assert max(map(len, wrapped)) <= 60


def test_a_case_whose_speedup_was_not_reached_is_not_judged():
    half = replace(result(Verdict.PASS), unfinished=("speedup",))
    assert rows(half)[0].endswith("  not judged; 1 pass")
    assert counts(half).text == "1 case: 1 not judged"
    half = replace(result(Verdict.REGRESSED), unfinished=("speedup",))
    told = [line.split()[-1] for line in lines(half, verbosity=-1)[1:]]
    assert told == ["regressed", "judged"]


def test_an_expected_failure_is_no_alarm_and_not_good_either():
    known = result(Verdict.REGRESSED, speedup=Verdict.PASS)
    known = with_judgement(known, replace(known.judgements["throughput"], expected="#812"))
    assert lines(known, verbosity=-1)[-1].endswith("  regressed, expected; 1 pass")
    line = counts(known, result(Verdict.PASS))
    assert line.text == "2 cases: 1 expected, 1 pass"
    assert "yellow" in line.markup


@pytest.mark.parametrize("tiny", [-0.04, -1e-9, -0.0, 0.0, 0.04])
def test_a_difference_that_rounds_to_nothing_is_no_loss(tiny):
    assert numbers.signed_percent(tiny) == "+0.0 %"
    assert numbers.interval((tiny, -0.06)) == "+0.0 to -0.1 %"


def test_only_the_first_left_out_logs_are_listed():
    ignored = tuple(IgnoredLog(f"{number}\n.log", "the reason") for number in range(30))
    text = lines(result(Verdict.PASS), ignored_logs=ignored)
    at = text.index("logs that were left out: 30")
    assert text[at + 1] == r"  0\n.log: the reason"
    assert text[-1] == "  … and 10 more; --dlperf-json FILE has all of them"
    assert len(text) == at + 22


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
        *nights.night("now", {"1n1g": [400.0] * 3, "1n2g": [760.0] * 3}),
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
    lines = suite.run(*nights.usual("now", of_1n1g=0.8, of_1n2g=0.8)).outlines
    at = next(place for place, line in enumerate(lines) if said in line)
    assert "every topology lost" in " ".join(" ".join(lines[at : at + 2]).split())
    assert max(map(len, lines[at : at + 2])) <= int(width)


def verdicts(found, *, every=False):
    """Metric and verdict of each row."""
    return [(row.metric, row.verdict) for row in case_rows(found, every=every)]


def below(found, **how):
    """What stands below the rows of a case: facts, then runs."""
    return [line.strip() for line in lines(found, **how) if line.startswith("    ")]


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
    unjudged = replace(result(Verdict.PASS), judgements={})
    assert verdicts(unjudged) == [("throughput", "not judged")]


def test_what_a_failure_says_is_said_again_only_where_there_is_none():
    """What passes in spite of its loss has no failure."""
    shift = moved_case("paddle-resnet50-fp32-b1-2n8g", -9.9, verdict=Verdict.ENVIRONMENT_SHIFT)
    assert not below(moved_case(ID, -9.9), with_failures=False)
    assert len(below(shift, with_failures=False)) > 2
    assert not below(shift, with_failures=False, strict=True)


def test_broken_runs_are_explained_in_a_line_that_others_cannot_forge():
    broken = result(Verdict.INVALID, throughputs=(8940.3, None))
    assert below(broken)[-1] == "run 2: too few steps"
    run = replace(broken.measurement.runs[1], reason="训练\x1b[31m\ttoo\u2028few\udc80")
    runs = (broken.measurement.runs[0], run)
    odd = replace(broken, measurement=replace(broken.measurement, runs=runs))
    assert below(odd)[-1] == "run 2: 训练\\x1b[31m\\ttoo\\u2028few\\udc80"


def test_the_rules_own_number_and_the_accepted_one_stand_below_others():
    """The rule may leave strays out, and the last sessions lie where they lie."""
    strayed = result(Verdict.PASS)
    by = decided(strayed.judgements["throughput"], reference=8600.0, difference_percent=-0.5)
    strayed = with_judgement(strayed, by)
    cells = case_rows(strayed)[0].cells
    assert [cells[name] for name in ("median", "reference", "diff")] == [
        "8781.78", "8600.00", "-0.5 %"
    ]  # fmt: skip
    assert "compared   the runs that count lie at 8557.00" in below(strayed, verbosity=1)


def test_scaling_names_its_kind_and_another_reference_topology():
    case = replace(
        Case.from_id("megatron-llama-bf16-gb128-s4096-tp2-4n8g"),
        reference_topology=Topology(1, 8),
    )
    assert scaling([replace(result(Verdict.PASS), case=case)]) == {
        "megatron-llama-bf16-gb128-s4096-tp2 over 1n8g, strong scaling:": [
            "4n8g 24.00 of 4 (600 %)"
        ]
    }


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

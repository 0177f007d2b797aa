"""Two results side by side: ratios and their intervals, and the words of all reports."""

import io
import math
import random
import re

import pytest
from msgspec.structs import replace
from results_makers import EVEN, MEMORY, even_case, measured_case, session, unmeasured_case

from pytest_dlperf.command.compare import comparison_lines
from pytest_dlperf.command.shell import Style
from pytest_dlperf.model.builtin import builtin_metrics
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint, LaunchFacts, RunStatus
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.numbers import counted
from pytest_dlperf.model.statistics import median
from pytest_dlperf.report.comparison import comparison_markdown, sections
from pytest_dlperf.results.comparison import Conclusion, compare_results, ratio_error

ONE = "paddle-resnet50-fp32-b128-1n1g"
EIGHT = "paddle-resnet50-fp32-b128-1n8g"
BERT = "tensorflow-bert_base-fp16-b96-xla-2n8g"
OPTIONS = "pytorch-resnet50-fp32-b128-dali+workers8-1n4g"
PER_DEVICE = builtin_metrics("images/s")["throughput_per_device"]


def at(level, case_id=ONE, **more):
    return even_case(level, case_id, **more)


class Shown:
    """A comparison in all its forms."""

    def __init__(self, first, second, files=("a.json", "b.json")):
        if second is not first:
            second = replace(second, session="b" * 32)
        self.comparison, self.files = compare_results(first, second), files
        self.sections = list(sections(self.comparison, self.files))
        self.head = str(self.sections[0].title)
        self.not_compared = tuple(
            (f"{counted(len(ids), 'case')} {why}", tuple(ids))
            for why, ids in self.comparison.not_compared.items()
        )

    def titled(self, title):
        """The section whose title begins so."""
        return next(one for one in self.sections if str(one.title).startswith(title))

    @property
    def remarks(self):
        return list(map(str, self.titled("what to know of these numbers").lines))

    @property
    def terminal(self):
        return "\n".join(self.lines)

    @property
    def lines(self):
        return list(comparison_lines(self.comparison, self.files, Style(io.StringIO())))

    @property
    def markdown(self):
        return comparison_markdown(self.comparison, self.files)

    @property
    def differences(self):
        return [
            (*map(str, row.cells), str(row.note).partition(": ")[0])
            for row in self.titled("what differs").table[1:]
        ]

    def by(self, name="throughput"):
        [metric] = [metric for metric in self.comparison.metrics if metric.name == name]
        return metric

    def case(self, case_id, metric="throughput"):
        [case] = [case for case in self.by(metric).cases if case.case_id == case_id]
        return case

    def row(self, case_id, metric="throughput"):
        """The cells of a case, then what is concluded."""
        table = [[*map(str, row.cells)] for row in self.titled(f"{metric} (").table]
        [cells] = [cells for name, *cells in table if name.partition(" ")[0] == case_id]
        return tuple(cells)

    def match(self, *patterns):
        pytest.LineMatcher(self.lines).fnmatch_lines(patterns)


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch):
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_each_case_has_its_ratio_with_an_interval_and_a_word():
    shown = Shown(
        session(at(350.0), at(2600.0, EIGHT, speedup=7.0), at(5000.0, BERT)),
        session(at(364.0), at(2470.0, EIGHT, speedup=6.3), at(5005.0, BERT)),
    )

    *cells, interval, word = shown.row(ONE)
    assert (*cells, word) == ("5, 5", "350.00", "364.00", "1.040", "better")
    low, high = map(float, interval.split(" to "))
    assert 1 < low < 1.04 < high < 1.06
    assert shown.row(EIGHT)[3::2] == ("0.950", "worse")
    assert shown.row(EIGHT, "speedup")[:4] == ("5, 5", "7.00", "6.30", "0.900")
    assert shown.row(BERT)[-1] == "no difference seen"
    assert shown.head == (
        "throughput 0.996 x in the mean, 0.950 x at worst (worse): 1 better, 1 worse, "
        "1 no difference seen; speedup 0.900 x, worse"
    )
    shown.match(
        "3 cases compared: 1 better, 1 worse, 1 no difference seen",
        "B/A is 0.996 in the geometric mean of 3 cases",
    )


@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (5, 1), (2, 2), (2, 5)])
def test_too_few_runs_have_no_interval(ours, theirs):
    shown = Shown(session(at(350.0, runs=ours)), session(at(700.0, runs=theirs)))
    runs, _, _, ratio, interval, word = shown.row(ONE)
    assert (runs, interval, word) == (f"{ours}, {theirs}", "-", "too few runs")
    assert "An interval needs 3 runs on both sides." in shown.remarks
    assert shown.head == f"throughput {ratio} x, too few runs to be sure"
    for text in (shown.terminal, shown.markdown):
        assert shown.head in text


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
def test_the_interval_holds_the_true_ratio_as_often_as_it_says(deviations, counts, strays):
    """Also where one side is noisier, and where a tenth of the runs are accidents."""
    draw = random.Random(1)  # noqa: S311 - the same runs every time

    def runs(deviation, count):
        return [
            draw.gauss(1, deviation) * (draw.uniform(0.7, 0.95) if draw.random() < strays else 1)
            for _ in range(count)
        ]

    held = 0
    for _ in range(1000):
        first, second = (runs(*one) for one in zip(deviations, counts, strict=True))
        error = ratio_error(first, second)
        held += abs(math.log(median(second) / median(first))) <= error.interval
    assert 930 <= held <= 995


def test_a_case_that_was_not_measured_whole_is_never_better():
    """Neither with a broken run nor with a test that was lost with its worker."""
    lost = replace(at(9000.0, BERT), is_whole=False)
    shown = Shown(
        session(at(350.0), at(2600.0, EIGHT), at(5000.0, BERT)),
        session(at(350.0), at(5200.0, EIGHT, broken=[RunStatus.HUNG]), lost),
    )
    assert shown.row(EIGHT)[::5] == ("5, 5 of 6", "broken runs")
    assert shown.row(BERT)[-1] == "broken runs"
    assert len(shown.by().known_cases) == 1


def test_what_cannot_be_compared_is_listed_with_what_each_side_says():
    arcface = "paddle-arcface_r50-fp32-b64-1n1g"
    shown = Shown(
        session(at(350.0), at(2600.0, EIGHT), at(5.0, BERT), at(9.0, OPTIONS)),
        session(
            at(350.0),
            unmeasured_case(EIGHT, Verdict.SKIPPED, "no hosts"),
            at(5.0, BERT, unit="sentences/s"),
            at(9.0, arcface),
        ),
    )
    assert shown.head == "throughput 1.000 x, no difference seen"
    assert shown.not_compared == (
        ("1 case not compared (A: measured, B: skipped)", (EIGHT,)),
        ("1 case not compared by throughput (A: in images/s, B: in sentences/s)", (BERT,)),
        ("1 case only in A", (OPTIONS,)),
        ("1 case only in B", (arcface,)),
    )
    for why, [case_id] in shown.not_compared:
        shown.match(why, f"  {case_id}")
        assert case_id in shown.markdown


def test_cases_of_two_frameworks_are_paired_where_each_side_has_one():
    twice = "pytorch-resnet50-fp32-b128-xla-1n4g"
    shown = Shown(
        session(
            at(350.0), at(2600.0, EIGHT), at(9.0, OPTIONS), at(9.5, twice), at(5.0, BERT),
        ),
        session(
            at(350.0),
            # The same step, said otherwise.
            at(2470.0, "jax-resnet50-fp32-gb1024-1n8g"),
            at(9.0, "jax-resnet50-fp32-b128-1n4g"),
            at(5.0, "jax-bert_base-fp16-b96-1n8g"),
        ),
    )  # fmt: skip
    assert shown.comparison.paired == {EIGHT: "jax-resnet50-fp32-gb1024-1n8g"}
    assert shown.row(EIGHT)[3] == "0.950"
    assert [case.case_id for case in shown.by().cases] == [ONE, EIGHT]
    assert shown.not_compared == (
        ("3 cases only in A", (OPTIONS, twice, BERT)),
        ("2 cases only in B", ("jax-bert_base-fp16-b96-1n8g", "jax-resnet50-fp32-b128-1n4g")),
    )
    for text in (shown.terminal, shown.markdown):
        assert "Paired by model, precision, work of a step and topology:" in text
        assert "gb1024" in text


def test_what_differs_stands_before_the_cases():
    def side(torch):
        taken_on = Fingerprint(
            machine={"device": "V100"}, software={"cuda": "11.8", "torch": torch}
        )
        return at(350.0, fingerprint=taken_on)

    shown = Shown(
        session(side("2.12"), cluster="office"),
        session(
            side("2.13"),
            cluster="cloud",
        ),
    )
    assert shown.differences == [
        ("cluster", "office", "cloud", ""),
        ("software torch", "2.12", "2.13", ""),
    ]
    shown.match(
        "what differs", " * A: a.json  B: b.json", "cluster * office * cloud", "throughput (*",
            )  # fmt: skip
    assert shown.markdown.index("2.12") < shown.markdown.index("350.00")


def test_what_differs_in_some_cases_only_names_them():
    def side(blocking, driver):
        def launched(case_id, **environment):
            facts = LaunchFacts(
                launcher="ssh", arguments=("python", "train.py"), environment=environment
            )
            taken_on = Fingerprint(software={"driver": driver}, launch=facts)
            return at(350.0, case_id, fingerprint=taken_on)

        return session(launched(ONE), launched(EIGHT, NCCL_BLOCKING_WAIT=blocking), launched(BERT))

    shown = Shown(side("0", "535.54"), side("1", "550.90"))
    assert [(name, where) for name, _, _, where in shown.differences] == [
        ("environment NCCL_BLOCKING_WAIT", "in 1 of 3 cases"), ("software driver", "")
    ]  # fmt: skip
    for text in (shown.terminal, shown.markdown):
        told = text.index("in 1 of 3 cases")
        assert text.index(EIGHT, told) < text.index("350.00")
    assert shown.terminal.count("550.90") == 1


def test_all_values_of_one_thing_share_a_line():
    ids = [EIGHT.replace("1n8g", f"{nodes}n8g") for nodes in range(1, 6)]

    def side(name):
        return session(
            *(
                at(350.0, case_id, fingerprint=Fingerprint(hosts=(f"{name}{number}",)))
                for number, case_id in enumerate(ids)
            )
        )

    shown = Shown(side("old"), side("new"))
    assert shown.differences == [
        ("hosts", "old0, old1, old2, old3, old4", "new0, new1, new2, new3, new4", ""),
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ((1e-320,) * 3, (1e308,) * 3, "A: 1e-320, B: 1e+308"),
        ((1e308,) * 3, (1e-320,) * 3, "A: 1e+308, B: 1e-320"),
        ((0.0,) * 3, (1.0,) * 3, "A: 0, B: 1"),
    ],
)
def test_runs_that_no_ratio_can_be_made_of_are_left_out(ours, theirs, said):
    """No session would write them, but a file may hold them."""
    shown = Shown(
        session(measured_case(ONE, *ours), at(5.0, EIGHT)),
        session(measured_case(ONE, *theirs), at(6.0, EIGHT)),
    )
    assert shown.not_compared == ((f"1 case not compared by throughput ({said})", (ONE,)),)
    assert shown.row(EIGHT)[3] == "1.200"
    assert not re.search(r"\b(inf|nan)\b", shown.terminal)


def test_worse_cases_are_named_the_worst_first():
    shown = Shown(
        session(at(1.0), at(1.0, EIGHT), at(1.0, BERT, runs=2)),
        session(at(0.9), at(0.8, EIGHT), at(0.1, BERT, runs=2)),
    )
    for text in (shown.terminal, shown.markdown):
        told = re.split("worse, the worst first", text, flags=re.IGNORECASE)[1]
        assert told.index("0.800 (") < told.index("0.900 (")


# ----------------------------------------------------------------- what is no difference


@pytest.mark.parametrize(
    ("level", "difference"),
    [
        (0.986, "no difference seen"),
        (0.985, "worse"),
        (1.0142, "no difference seen"),
        (1.016, "better"),
    ],
)
def test_a_case_whose_interval_ends_at_1_as_it_is_written_is_not_called_worse(level, difference):
    shown = Shown(session(at(1000.0)), session(at(1000.0 * level)))
    *_, interval, word = shown.row(ONE)
    low, high = shown.case(ONE).interval
    assert not low <= 1 <= high
    assert word == difference
    assert ("1.000" in interval.split(" to ")) == (difference == "no difference seen")


@pytest.mark.parametrize(
    ("now", "ratio", "difference"),
    [
        (13392.0, "1.000", "no difference seen"),
        (13395.0, "1.0003", "worse"),
        (13618.0, "1.017", "worse"),
        (13387.0, "0.9997", "better"),
    ],
)
def test_what_does_not_differ_from_run_to_run_is_compared_exactly(now, ratio, difference):
    def side(memory):
        return session(measured_case(ONE, 350.0, 351.0, more={MEMORY: [memory] * 2}))

    shown = Shown(side(13391.0), side(now))
    assert shown.row(ONE, "peak_memory")[3:] == (ratio, "exact", difference)
    assert shown.row(ONE)[-1] == "too few runs"


# ------------------------------------------------------------------------- which metric


def with_memory(level, metric=MEMORY):
    memory = {metric: [level * one for one in EVEN]}
    return session(measured_case(ONE, *(350.0 * one for one in EVEN), more=memory))


@pytest.mark.parametrize(
    ("better", "difference"),
    [(Better.LOWER, "worse"), (Better.HIGHER, "better"), (None, "different")],
)
def test_each_metric_is_compared_in_its_direction(better, difference):
    metric = replace(MEMORY, better=better)
    shown = Shown(with_memory(9000.0, metric), with_memory(9540.0, metric))
    row = shown.row(ONE, "peak_memory")
    assert (*row[1:4], row[-1]) == ("9000", "9540", "1.060", difference)
    assert shown.row(ONE)[-1] == "no difference seen"
    assert len(shown.by("peak_memory").worse_cases) == (difference == "worse")
    assert shown.head == (
        f"throughput 1.000 x, no difference seen; peak_memory 1.060 x, {difference}"
    )
    for text in (shown.terminal, shown.markdown):
        for words in ("peak_memory", "9540", "1.060", "MB", " is better"):
            assert words in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"unit": "GiB"}, "A: in MB, B: in GiB"),
        ({"better": Better.HIGHER}, "A: better is lower, B: better is higher"),
        ({"better": None}, "A: better is lower, B: better is neither"),
    ],
)
def test_a_metric_that_means_something_else_is_refused_and_the_others_are_compared(change, said):
    shown = Shown(with_memory(9000.0), with_memory(9000.0, replace(MEMORY, **change)))
    assert shown.not_compared == ((f"1 case not compared by peak_memory ({said})", (ONE,)),)
    assert [metric.name for metric in shown.comparison.metrics] == ["throughput"]


def test_a_metric_that_one_side_lacks_is_told():
    for sides, name in ((0, "B"), (1, "A")):
        pair = [with_memory(9000.0), session(at(350.0))]
        shown = Shown(pair[sides], pair[1 - sides])
        assert shown.not_compared == ((f"1 case without peak_memory in {name}", (ONE,)),)


# ---------------------------------------------------------------------------- the gate


def test_a_gate_fails_for_what_it_is_asked_for_and_for_what_has_no_number():
    four = EIGHT.replace("1n8g", "4n8g")
    comparison = compare_results(
        session(at(1.0), at(1.0, EIGHT), at(1.0, four), at(1.0, BERT), at(1.0, OPTIONS, runs=2)),
        session(
            at(0.96),
            at(1.2, EIGHT),
            at(1.0, four, broken=[RunStatus.HUNG]),
            unmeasured_case(BERT, Verdict.FAILED, "no hosts"),
            at(0.1, OPTIONS, runs=2),
        ),
    )

    lost = {
        "broken runs of throughput": [four],
        "not compared (A: measured, B: failed)": [BERT],
    }
    assert comparison.failures({Conclusion.WORSE}) == {"worse by throughput": [ONE], **lost}
    assert comparison.failures({Conclusion.WORSE}, 4.1) == lost
    assert comparison.failures({Conclusion.BETTER}, 4.1) == {
        "better by throughput": [EIGHT],
        **lost,
    }
    assert comparison.failures({Conclusion.TOO_FEW}, 99.0) == {
        "too few runs of throughput": [OPTIONS],
        **lost,
    }


def test_a_gate_looks_at_metrics_that_a_test_judges():
    recorded = replace(MEMORY, is_judged=False)
    worse = compare_results(with_memory(9000.0, recorded), with_memory(9900.0, recorded))
    assert worse.failures(set(Conclusion)) == {}
    without = compare_results(with_memory(9000.0), session(at(350.0)))
    assert without.failures({Conclusion.WORSE}) == {"without peak_memory in B": [ONE]}
    new = compare_results(session(at(350.0)), with_memory(9000.0))
    assert new.failures({Conclusion.WORSE}) == {}


# --------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            session(at(350.0, estimator=Estimator.PUBLISHED), estimator=Estimator.PUBLISHED),
            "A has numbers of the estimator 'steady', B of 'published'; ",
        ),
        (
            session(at(1.0, BERT)),
            f"A and B have no case in common: A has {ONE}, B has {BERT}",
        ),
        (
            session(unmeasured_case(ONE, Verdict.SKIPPED, "no hosts")),
            f"A and B have no case that can be compared: {ONE} not compared (",
        ),
    ],
)
def test_what_has_nothing_to_compare_is_refused(other, said):
    with pytest.raises(UsageError) as raised:
        compare_results(session(at(350.0)), other)
    assert str(raised.value).startswith(said)


def test_the_same_session_twice_is_compared_and_told():
    one = session(at(350.0))
    shown = Shown(one, one)
    assert shown.row(ONE)[3] == "1.000"
    assert shown.remarks[0].startswith("Both files are of one session")
    cut = Shown(one, replace(one, interrupted=True))
    assert cut.remarks[0].startswith("The session of B was interrupted")


# ---------------------------------------------------------------------- how it is shown


def test_it_is_readable_at_80_columns_and_a_table_where_there_is_room(
    monkeypatch,
):
    shown = Shown(
        session(
            at(148_000.25, BERT, speedup=14.0),
            at(9000.0, OPTIONS),
            at(1.0, ONE, runs=1),
            at(1.0, EIGHT),
            cluster="the third of the old ones in the cellar of the institute",
        ),
        session(
            at(149_000.25, BERT, speedup=15.0),
            at(9000.0, OPTIONS, broken=[RunStatus.HUNG] * 5),
            at(1.0, ONE, runs=1),
            at(2.0, EIGHT),
        ),
    )
    assert max(map(len, shown.lines)) <= 80
    assert "\033" not in shown.terminal

    monkeypatch.setenv("COLUMNS", "160")
    [line, _] = [line for line in shown.lines if line.startswith(BERT)]
    assert line.endswith("no difference seen")


HOSTILE = "<script>alert(1)</script>|\n# heading\x1b[31m \ud800 @somebody ##[error]no ::error::it"


def test_names_that_look_like_markup_are_shown_and_do_nothing():
    def side(name, level):
        taken_on = Fingerprint(software={HOSTILE: f"{HOSTILE}{name}"})
        return session(
            at(level, unit=HOSTILE, fingerprint=taken_on),
            cluster=f"{'x' * 70} {HOSTILE}{name}",
            environment={"commit": HOSTILE, "ci_run": "##[error]"},
        )

    shown = Shown(side("a", 1.0), side("b", 1.1), ("::error::x", "##[error]no"))
    assert not [line for line in shown.lines if line.lstrip().startswith(("::", "# heading"))]
    assert "##[" not in shown.terminal
    assert "\x1b" not in shown.terminal + shown.markdown
    assert "<script>alert" not in re.sub(r"`[^`]*`", "", shown.markdown)
    rows = [line for line in shown.markdown.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {8, 4}
    assert "\n# heading" not in shown.markdown

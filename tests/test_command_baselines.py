"""``pytest-dlperf baselines``: entries are shown by the ids of their cases."""

import re

import pytest

from pytest_dlperf.command.main import main

SPEED = "  throughput: {unit: images/s, better: higher}\n"
MEMORY = "  peak_memory: {unit: MB, better: lower}\n"
LATENCY = "  latency: {unit: ms, better: lower}\n"


def head(name, metrics=SPEED + MEMORY):
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
def folder(tmp_path, monkeypatch):
    """A cluster with the same entries of two systems."""
    folder = tmp_path / "baselines" / "mine"
    folder.mkdir(parents=True)
    (folder / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
    for name in ("a-x", "b-x"):
        (folder / f"{name}.yaml").write_text(head(name) + ENTRIES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def show(*arguments):
    return main(["baselines", "show", *arguments, "--cluster", "mine"])


def test_numbers_are_shown_with_who_accepted_them(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = (folder / "a-x.yaml").read_text(encoding="utf-8")
    # As a person writes it: what is not known is left out.
    acceptance = 'acceptance: {at: "2026-11-03T02:00:00Z", by: "Ana\\e[31m", reason: new loader}'
    (folder / "a-x.yaml").write_text(f"{text}      {acceptance}\n", encoding="utf-8")

    assert show("a-x-*") == 0

    blank = f"{'-':>5}  {'-':>4}  {'-':>9}  {'-':>5}"
    by = r"    accepted by Ana\x1b[31m on Tuesday 2026-11-03: new loader"
    assert capsys.readouterr().out.splitlines()[:-4] == [
        "case                metric       accepted          noise  sees  tolerance  needs",
        f"a-x-fp32-b128-1n1g  throughput   352.72 images/s   {blank}",
        f"a-x-fp32-b128-1n8g  throughput   2626.00 images/s  {blank}",
        by,
        f"a-x-fp32-b128-1n8g  peak_memory  13000 MB          {blank}",
        by,
    ]
    assert show("--metric", "peak_memory") == 0
    assert capsys.readouterr().out.count("MB") == 2


SYSTEM = """\
framework: a
model: x
unit: images/s
log: {name: a, format: dllogger}
window: {warmup_steps: 2, measured_steps: 5}
tolerance_percent: 4
metrics:
  peak_memory: {record: 'peak memory: (?P<value>[0-9.]+) MB', unit: MB, better: lower}
  latency: {record: 'latency: (?P<value>[0-9.]+) s', unit: s, better: lower}
cases:
  - {precision: fp32, batch_per_device: 128, topologies: [1n1g, 1n8g]}
"""


def judged(folder, capsys, entry, metric):
    """What the table tells of a metric of the case with this entry, by heading."""
    systems = folder.parents[1] / "bench_tests" / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    (systems / "a.yaml").write_text(SYSTEM, encoding="utf-8")
    text = f"{head('a-x', SPEED + MEMORY + LATENCY)}  fp32-b128:\n    1n8g:\n{entry}"
    (folder / "a-x.yaml").write_text(text, encoding="utf-8")
    assert show("a-x-fp32-b128-1n8g", "--metric", metric) == 0
    headings, cells, *_ = capsys.readouterr().out.splitlines()
    return dict(zip(headings.split(), re.split(r" {2,}", cells), strict=True))


@pytest.fixture
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.usefixtures("_wide")
def test_beside_a_number_stands_what_the_gate_can_see(folder, capsys):
    runs = [2626.0, 2600.0, 2652.0, 2613.0, 2639.0]
    first = dict(enumerate(runs, 1))
    entry = f"      throughput:\n        accepted: 2626\n        runs: {first}\n"
    one = judged(folder, capsys, entry, "throughput")
    assert (one["noise"], one["tolerance"]) == ("0.8 %", "4.0 %")
    assert 4 < float(one["sees"].removesuffix(" %")) < 6
    assert 2 < float(one["needs"].removesuffix(" %")) < 4
    sessions = "".join(f'          - {{at: "2026-11-0{day}T02:00:00Z", runs: {runs}}}\n'
                       for day in range(1, 6))  # fmt: skip
    spread = f"        spread: {{losses: {[[0.1, 0.5]] * 8}}}\n"
    six = judged(folder, capsys, f"{entry}        sessions:\n{sessions}{spread}", "throughput")
    assert six["noise"] == "0.8 %"
    assert 2 <= float(six["sees"].removesuffix(" %")) < 3


@pytest.mark.usefixtures("_wide")
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("accepted: 13000, runs: {1: 13000, 2: 13000, 3: 13000}", ("0.0 %", "2.7 %", "0.0 %")),
        ("accepted: 13000, runs: {1: 13000}", ("-", "-", "-")),
        ("accepted: 13000", ("-", "-", "-")),
    ],
    ids=["constant", "one run", "a number alone"],
)
def test_a_memory_that_is_the_same_in_every_run_has_no_noise(folder, capsys, values, told):
    found = judged(folder, capsys, f"      peak_memory: {{{values}}}\n", "peak_memory")
    assert (found["noise"], found["sees"], found["needs"]) == told


@pytest.mark.usefixtures("_wide")
def test_a_number_in_another_unit_is_never_compared(folder, capsys):
    entry = "      latency: {accepted: 3, runs: {1: 3, 2: 3, 3: 3}}\n"
    found = judged(folder, capsys, entry, "latency")
    assert {found[name] for name in ("noise", "sees", "tolerance", "needs")} == {"-"}


@pytest.mark.parametrize(
    ("case", "metric", "there_are"),
    [
        ("a-x-*", "peak_memry", "peak_memory, throughput; did you mean 'peak_memory'?"),
        ("a-x-fp32-b128-1n1g", "peak_memory", "throughput"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_metric_that_no_case_has_is_a_mistake(case, metric, there_are, capsys):
    assert show(case, "--metric", metric) == 2

    told = f"--metric: these cases have no metric {metric!r}; there are: {there_are}"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (
            ["a-x-fp32-b128-1n1g", "a-x-fp32-b128-2n8g"],
            "no entry 'a-x-fp32-b128-2n8g'; there are: ",
        ),
        (["*-4n8g"], "no entry '*-4n8g'; there are: a-x"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_case_without_entry_is_a_mistake(cases, message, capsys):
    assert show(*cases) == 2

    assert f"cluster mine has {message}" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_cluster_that_there_is_not_is_a_mistake(capsys):
    assert main(["baselines", "show", "a", "--cluster", "yours"]) == 2

    assert "there is no cluster 'yours'" in capsys.readouterr().err

"""Probes: programs without steps that print numbers, from the system file to every report."""

import json
import re

import pytest
from judged_logs import judged

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.case import Case, Topology

CASES = [f"disk-write-{block}-1n1g" for block in ("4k", "1m")]
SYSTEM = """\
framework: disk
model: write
cases:
  - {axes: {block: [4k, 1m]}, topologies: [1n1g]}
metrics:
  latency: {record: 'latency (?P<value>[^ ]+) ms', unit: ms, better: lower}
  bandwidth: {record: 'wrote at (?P<value>[^ ]+) MB/s', unit: MB/s, better: higher}
repeats: 3
"""
LAUNCH = """\
launch:
  devices: cpu
  values:
    size: [{value: small, when: {axes: {block: 4k}}}, {value: large}]
  command: ["{python}", -c, "PROGRAM", "{block}", "{size}"]
"""
PROGRAM = (
    "import sys; print('latency', 2.0, 'ms', *sys.argv[1:]); "
    "print('wrote at', dict(a4k=100.0, a1m=250.0)['a' + sys.argv[1]], 'MB/s')"
)


def launched(program=PROGRAM):
    return SYSTEM + LAUNCH.replace("PROGRAM", program.replace("'", "\\x27"))


def logs_of(folder, *, latency_ms=2.0, rest=""):
    """Write three runs of each case; ``rest`` in the place of the bandwidth."""
    for block, bandwidth in (("4k", 100), ("1m", 250)):
        place = folder / block / "1n1g"
        place.mkdir(parents=True)
        for run in (1, 2, 3):
            latency = latency_ms * (1 + run / 1000)
            text = rest or f"wrote at {bandwidth + run / 10} MB/s\n"
            (place / f"disk_{run}.log").write_text(f"latency {latency} ms\n{text}")
    return folder


def judge(suite, folder, *arguments):
    """Judge logs; the metrics by case."""
    file = suite.path / "results.json"
    result = suite.run(
        "-k", "disk", "--dlperf-logs", f"disk-write={folder}", f"--dlperf-json={file}", *arguments
    )
    cases = json.loads(file.read_text())["cases"]
    return result, {case["id"]: case["metrics"] for case in cases}


def test_ids_name_framework_model_and_axes_in_their_order():
    case = Case(
        framework="nccl",
        model="tests",
        free_axes={"collective": "all_reduce", "dtype": "bf16"},
        topology=Topology(2, 8),
        reference_topology=None,
    )
    assert case.id == "nccl-tests-all_reduce-bf16-2n8g"
    assert Case.from_id(case.id) == case
    assert case.axes()["collective"] == "all_reduce"
    with pytest.raises(ValueError, match="would be read as a training"):
        Case(framework="a", model="b", free_axes={"x": "fp32", "y": "b4"}, topology=Topology(1, 1))


def test_it_is_launched_judged_and_recorded_without_steps(suite):
    suite.system_file(launched(), "disk-write.yaml")
    suite.run("-k", "disk", "--dlperf-create-baselines").assert_outcomes(passed=4)
    logs = sorted(suite.path.glob(".dlperf/runs/*/disk-write/*/1n1g/disk_1.log"))
    assert [log.read_text().splitlines()[0] for log in logs] == [
        "latency 2.0 ms 1m large",
        "latency 2.0 ms 4k small",
    ]
    accepted = (suite.path / "baselines/local/disk-write.yaml").read_text()
    assert "measured in a session" in accepted
    again = suite.run("-m", "dlperf(block='1m')", "--dlperf-json=r.json", "--junitxml=j.xml")
    again.assert_outcomes(passed=2)
    again.stdout.fnmatch_lines(["case * metric *", "disk-write-1m-1n1g * latency *"])
    [case] = json.loads((suite.path / "r.json").read_text())["cases"]
    assert case["case"]["free_axes"] == {"block": "1m"}
    assert (case["precision"], case["batch"]) == (None, None)
    assert {name: metric["verdict"] for name, metric in case["metrics"].items()} == {
        "latency": "pass",
        "bandwidth": "pass",
    }


@pytest.mark.in_process
def test_a_slower_main_number_that_is_better_the_lower_is_red(suite, tmp_path, command):
    suite.system_file(SYSTEM, "disk-write.yaml")
    first, _ = judge(suite, logs_of(tmp_path / "first"), "--dlperf-create-baselines")
    first.assert_outcomes(passed=4)
    result, metrics = judge(
        suite,
        logs_of(tmp_path / "slow", latency_ms=2.4),
        "--dlperf-markdown=r.md",
        "--dlperf-html=r.html",
    )
    result.assert_outcomes(passed=2, failed=2)
    assert {case: one["latency"]["verdict"] for case, one in metrics.items()} == dict.fromkeys(
        CASES, "regressed"
    )
    assert not any("throughput" in one for one in metrics.values())
    for page in ("r.md", "r.html"):
        assert "latency" in (suite.path / page).read_text()
    command("check").stdout.fnmatch_lines(["*no faults*"])
    shown = command("history", "show", "disk-*")
    shown.stdout.fnmatch_lines(["latency, cluster local*", "disk-write-1m-1n1g", "*2.4* ms last*"])
    asked = command("bisect", "--case", CASES[0])
    asked.stdout.fnmatch_lines([f"{CASES[0]}: nothing recorded differs*"])


@pytest.mark.in_process
def test_a_number_that_is_missing_or_none_is_invalid_by_name(suite, tmp_path):
    suite.system_file(SYSTEM, "disk-write.yaml")
    judge(suite, logs_of(tmp_path / "first"), "--dlperf-create-baselines")
    _, gone = judge(suite, logs_of(tmp_path / "gone", rest="Killed\n"))
    assert gone[CASES[0]]["latency"]["verdict"] == "pass"
    assert gone[CASES[0]]["bandwidth"]["verdict"] == "invalid"
    assert "no match" in gone[CASES[0]]["bandwidth"]["reason"]
    _, nan = judge(suite, logs_of(tmp_path / "nan", rest="wrote at nan MB/s\n"))
    assert nan[CASES[0]]["bandwidth"]["verdict"] == "invalid"
    assert "nan" in nan[CASES[0]]["bandwidth"]["reason"]
    empty = tmp_path / "empty.log"
    empty.write_text("")
    silent = suite.run("-k", "disk and 4k", "--dlperf-logs", f"{CASES[0]}={empty}")
    silent.assert_outcomes(failed=2)
    silent.stdout.fnmatch_lines(["*nothing was printed*"])


def test_a_program_that_dies_has_failed_whatever_it_has_printed(suite):
    suite.system_file(launched(PROGRAM + "; sys.exit(3)"), "disk-write.yaml")
    result = suite.run("-k", "disk and 4k", "--dlperf-create-baselines")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*exit code 3 on node 0*"])


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        ("cases:", "window: {warmup_steps: 1, measured_steps: 2}\ncases:", "'unit' is missing"),
        ("{axes: {block: [4k, 1m]}", "{precision: bf16", "'precision' is of trainings"),
        ("block: [4k, 1m]", "self: [4k]", "'self' has a meaning already"),
        ("block: [4k, 1m]", "block: [4-k]", "'4-k' is not a valid value of the axis block"),
        ("latency: {", "throughput: {} \n  latency: {", "throughput is of trainings"),
        ("unit: ms,", "unit: ms, over: window,", "a probe has no steps"),
        ("unit: ms,", "unit: ms, sanity: falls,", "a probe has no steps"),
        ('"{block}"', '"{global_batch}"', "uses {global_batch}, and disk-write-4k-1n1g is a probe"),
        ("  devices: cpu", "  step_limit_s: 5", "'step_limit_s' is of trainings"),
    ],
)
def test_mistakes_of_its_file(tmp_path, there, instead, told):
    text = launched()
    assert there in text
    assert told in refused(tmp_path, text.replace(there, instead))


def refused(tmp_path, text):
    file = tmp_path / "disk-write.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(YamlError) as caught:
        load_systems([file], BUILTIN_FORMATS)
    return str(caught.value)


@pytest.mark.in_process
def test_a_training_may_leave_its_throughput_unjudged(suite):
    suite.system_file(
        "framework: plain\nmodel: gpt\nunit: samples/s\n"
        "log: {name: gpt, format: {record: 'step (?P<step>[0-9]+) (?P<seconds>[0-9.]+)'}}\n"
        "window: {warmup_steps: 1, measured_steps: 3}\n"
        "metrics: {throughput: {judged: false}, step_time_p50: {}}\n"
        "cases: [{precision: bf16, batch_per_device: 4, topologies: [1n1g, 1n2g]}]\n",
        "plain-gpt.yaml",
    )
    listed = suite.run("--collect-only", "-q", "-k", "gpt").outlines
    assert [line.rpartition("::")[2] for line in listed if "gpt" in line] == [
        "test_metric[plain-gpt-bf16-b4-1n1g-step_time_p50]",
        "test_metric[plain-gpt-bf16-b4-1n2g-step_time_p50]",
        "test_speedup[plain-gpt-bf16-b4-1n2g]",
    ]


# ------------------------------------------------------------------------------- families

TABLE = """\
framework: nccl
model: tests
cases: [{axes: {collective: [all_reduce]}, topologies: [1n1g]}]
metrics:
  average: {record: 'Avg bus bandwidth *: (?P<value>[^ ]+)', unit: GB/s, better: higher}
  busbw:
    record: '^ *(?P<size>[0-9]+) .* sum +(?P<value_out>[^ ]+) +0 +(?P<value_in>[^ ]+) +0$'
    unit: GB/s
    better: higher
"""
SIZES = [2**power for power in range(20, 30)]
ALL_REDUCE = "nccl-tests-all_reduce-1n1g"


def table_of(folder, factors=None, extra=""):
    """Write five runs as nccl-tests prints them; a size whose factor is 0 is left out."""
    place = folder / "all_reduce" / "1n1g"
    place.mkdir(parents=True)
    for run in range(1, 6):
        lines = ["#       size         count      type   redop  busbw #wrong  busbw #wrong"]
        for number, size in enumerate(SIZES):
            noise = 1 + ((run * 7 + number * 3) % 5 - 2) / 1000
            busbw = 100 * noise * (factors or {}).get(size, 1.0)
            if busbw:
                lines.append(f"{size:12} {size // 4:12} float sum {busbw:8.3f} 0 {busbw:8.3f} 0")
        text = "\n".join([*lines, extra, "# Avg bus bandwidth    : 87.5"])
        (place / f"nccl_{run}.log").write_text(text)
    return folder


@pytest.fixture
def table(suite, tmp_path):
    """A suite with a family, accepted by name."""
    suite.system_file(TABLE, "nccl-tests.yaml")
    accepted = judge_table(suite, table_of(tmp_path / "accepted"), "--dlperf-create-baselines")
    accepted.assert_outcomes(passed=2)
    return suite


def judge_table(suite, folder, *arguments):
    return suite.run("-k", "nccl", f"--dlperf-logs=nccl-tests={folder}", *arguments)


@pytest.mark.in_process
def test_a_family_is_accepted_by_name_and_has_one_test(table, tmp_path):
    file = table.path / "baselines/local/nccl-tests.yaml"
    assert file.read_text().count("busbw/") == 2 * len(SIZES)
    assert file.read_text().count("busbw: {unit: GB/s, better: higher}") == 1
    night = table_of(tmp_path / "slow", {SIZES[0]: 0.83, SIZES[4]: 0.8})
    result = judge_table(table, night, "--dlperf-json=r.json", "--dlperf-markdown=r.md")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*note*4 of 20 of busbw fail: 16777216/out (regressed -20.* %), 16777216/in*1048576/out*"]
    )
    [case] = json.loads((table.path / "r.json").read_text())["cases"]
    verdicts = {name: one["verdict"] for name, one in case["metrics"].items()}
    assert list(verdicts)[:3] == ["average", "busbw/1048576/out", "busbw/1048576/in"]
    assert [name for name, verdict in verdicts.items() if verdict != "pass"] == [
        f"busbw/{size}/{where}" for size in (SIZES[0], SIZES[4]) for where in ("out", "in")
    ]


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("factors", "extra", "told"),
    [
        ({SIZES[3]: 0.0}, "", "2 of 20 of busbw fail: 8388608/out (invalid), 8388608/in (invalid)"),
        ({}, "         512  128 float sum 1.0 0 1.0 0", "512/out (no_baseline), 512/in (no_base"),
        ({}, f"{SIZES[0]} 128 float sum 9 0 9 0", "1048576/out is there twice; give the family a"),
        ({SIZES[1]: float("nan")}, "", "2 of 20 of busbw fail: 2097152/out (invalid)"),
    ],
)
def test_a_name_that_is_gone_new_twice_or_no_number_is_red_by_name(
    table, tmp_path, factors, extra, told
):
    result = judge_table(table, table_of(tmp_path / "night", factors, extra))
    result.assert_outcomes(passed=1, failed=1)
    assert told in " ".join(result.outlines)


@pytest.mark.in_process
def test_a_failure_says_how_a_name_that_is_gone_is_taken_back(table, tmp_path):
    gone = dict.fromkeys(SIZES[3:6], 0.0)
    faster = table_of(tmp_path / "faster", gone | {SIZES[0]: 1.2})
    refused = judge_table(table, faster, "--dlperf-update-baselines")
    assert "busbw/16777216/out is invalid and 3 more" in " ".join(refused.outlines)
    night = table_of(tmp_path / "gone", gone)
    result = judge_table(table, night)
    file = table.path / "baselines/local/nccl-tests.yaml"
    [found] = {line for line in result.outlines if "if it is gone for good" in line}
    place = int(found.rpartition(f"{file}:")[2].rstrip("`"))
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    assert "busbw/8388608/out" in lines[place - 1]
    text = "".join(lines)
    for size in SIZES[3:6]:
        text = re.sub(rf"( +)busbw/{size}/(?:out|in):.*\n(?:\1 +.*\n)*", "", text)
    file.write_text(text, encoding="utf-8")
    judge_table(table, night).assert_outcomes(passed=2)


@pytest.mark.in_process
@pytest.mark.usefixtures("table")
def test_a_family_is_checked_as_one(command):
    command("check").stdout.fnmatch_lines(["*no faults*"])
    asked = command("bisect", "--case", ALL_REDUCE, "--metric=busbw")
    asked.stderr.fnmatch_lines(["*--metric: busbw is a family; name a metric of it*"])


@pytest.mark.parametrize("printed", ["wrote at nan MB/s", "wrote at once"])
def test_a_run_without_any_number_that_is_judged_is_the_last(suite, printed):
    suite.system_file(launched(f"print('latency many ms'); print('{printed}')"), "disk-write.yaml")
    _, results = suite.judge("-k", "4k", cluster="local")
    [case] = results["cases"]
    assert {one["verdict"] for one in case["metrics"].values()} == {"invalid"}
    assert len(case["measurement"]["runs"]) == 1


# -------------------------------------------------------------------------- numbers by key

KEYED = """\
framework: disk
model: write
cases: [{topologies: [1n1g]}]
metrics:
  bandwidth: {json: jobs.0.write.bw, printed_in: kB/s, unit: MB/s, better: higher}
  tail: {json: p99.9.of.all, unit: ms, better: lower}
  latency: {json: jobs.0.latency.*, printed_in: ns, unit: ms, better: lower}
  sizes: {json: {value: results.*.bw, size: results.*.size}, unit: GB/s, better: higher}
  table: {csv: {value: bw, size: size}, where: {op: read}, unit: GB/s, better: higher}
repeats: 2
"""
DOCUMENT = {
    "jobs": [{"write": {"bw": 250000.0}, "latency": {"50.0": 1.5e6, "99.0": 4e6}}],
    "p99.9": {"of.all": 2.5},
    "results": [{"size": 8, "bw": 1.25}, {"size": 16, "bw": 2.5}],
}
ROWS = "size,op,bw\n8,read,1.5\n8,write,9.5\n16,read,3.0\n"
WRITES = f"""\
import json, sys
print("[INFO] begins", end=" ")
with open(sys.argv[1], "w") as file:
    json.dump({DOCUMENT}, file, indent=1)
print("[1] ends")
print({ROWS!r})
"""


def keyed_night(suite, log, text, *arguments):
    """Judge a log of the case; its metrics."""
    log.write_text(text)
    file = suite.path / "r.json"
    suite.run(
        "-k", "disk", f"--dlperf-logs=disk-write-1n1g={log}", f"--dlperf-json={file}", *arguments
    )
    [case] = json.loads(file.read_text())["cases"]
    return case["metrics"]


def test_numbers_by_key_come_from_the_file_that_a_program_writes(suite):
    program = suite.path / "program.py"
    program.write_text(WRITES)
    launch = 'launch:\n  log_file: "{scratch_directory}/result.json"\n  devices: cpu\n'
    launch += f'  command: ["{{python}}", {program}, '
    text = KEYED + launch + '"{scratch_directory}/result.json"]\n'
    suite.system_file(text, "disk-write.yaml")
    result = suite.run("-k", "disk", "--dlperf-create-baselines", "--dlperf-json=r.json")
    result.assert_outcomes(passed=5)
    [case] = json.loads((suite.path / "r.json").read_text())["cases"]
    assert {name: one["median"] for name, one in case["metrics"].items()} == {
        "bandwidth": 250.0,
        "tail": 2.5,
        "latency/50.0": 1.5,
        "latency/99.0": 4.0,
        "sizes/8": 1.25,
        "sizes/16": 2.5,
        "table/8": 1.5,
        "table/16": 3.0,
    }


@pytest.mark.parametrize(
    ("there", "instead", "told"),
    [
        ('"bw": 250000.0', '"bw": NaN', "nan"),
        ('"bw": 250000.0', '"bw": null', "jobs.0.write.bw is null, which is not a"),
        ('"bw": 250000.0', '"bw": "fast"', 'is "fast", which is not a number'),
        ('"bw": 250000.0', '"bw": true', "is true, which is not a number"),
        (
            '"write": {"bw"',
            '"read": {"bw"',
            "jobs.0 has no 'write', but read, latency",
        ),
        ('"size": 16, "bw"', '"size": 16, "gb"', "results.1.bw is not there"),
        ('"of.all"', '"of.some"', "p99.9 has no 'of', but of.some"),
        (', "results"', '; "results"', "the JSON there does not parse"),
        ("size,op,bw", "size,op,gb", "no line names the columns bw, size, op"),
        ("16,read,3.0", "16,read,", "'bw' is empty"),
    ],
)
def test_a_key_that_is_missing_or_no_number_is_told(tmp_path, there, instead, told):
    file = tmp_path / "disk-write.yaml"
    file.write_text(KEYED)
    whole = f"{json.dumps(DOCUMENT)}\n{ROWS}"
    assert not judged(file, whole).missing
    assert there in whole
    run = judged(file, whole.replace(there, instead))
    assert told in " ".join([*run.missing.values(), run.reason or ""])


@pytest.mark.in_process
def test_a_key_whose_unit_has_changed_is_no_gain(suite, tmp_path):
    suite.system_file(KEYED, "disk-write.yaml")
    whole = f"{json.dumps(DOCUMENT)}\n{ROWS}"
    keyed_night(suite, tmp_path / "first", whole, "--dlperf-create-baselines")
    changed = whole.replace("250000.0", "250000000.0").replace("1500000.0", "1500.0")
    found = keyed_night(suite, tmp_path / "changed", changed)
    verdicts = {name: one["verdict"] for name, one in found.items() if one["verdict"] != "pass"}
    assert verdicts == {"bandwidth": "inconclusive", "latency/50.0": "inconclusive"}
    assert "is 1000 times as good as accepted" in found["bandwidth"]["reason"]
    keyed_night(suite, tmp_path / "real", changed, "--dlperf-update-baselines")
    again = keyed_night(suite, tmp_path / "again", changed)
    assert {one["verdict"] for one in again.values()} == {"pass"}


# ------------------------------------------------------------------------------------ facts


@pytest.mark.in_process
def test_a_probes_log_is_held_against_its_axes(suite, tmp_path):
    facts = "log: {format: {facts: {block: 'blocks of (\\w+)', nodes: 'on (\\d+) nodes?'}}}\n"
    suite.system_file(f"{facts}{SYSTEM}", "disk-write.yaml")
    folder = logs_of(tmp_path / "right")
    for log in folder.rglob("*.log"):
        log.write_text(f"blocks of {log.parts[-3]} on 1 node\n{log.read_text()}")
    first, _ = judge(suite, folder, "--dlperf-create-baselines")
    first.assert_outcomes(passed=4)
    for log in (folder / "4k").rglob("*_2.log"):
        log.write_text(log.read_text().replace("blocks of 4k", "blocks of 8k"))
    result, metrics = judge(suite, folder)
    result.assert_outcomes(passed=2, failed=2)
    reason = metrics["disk-write-4k-1n1g"]["latency"]["reason"]
    assert "the log says block 8k; the case disk-write-4k-1n1g has 4k" in reason


TRAINING = """\
framework: a
model: b
unit: samples/s
window: {warmup_steps: 1, measured_steps: 5}
log: {name: a, format: {facts: {nodes: '(x)'}}}
cases: [{precision: fp32, batch_per_device: 1, topologies: [1n1g]}]
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            SYSTEM.replace("repeats: 3", "log: {format: {facts: {blok: '(x)'}}}"),
            "'blok' is not a fact of a case; those are block, precision",
        ),
        (TRAINING, "a record is one of 'record', 'json' and 'csv'"),
    ],
)
def test_facts_need_a_case_that_has_them(tmp_path, text, told):
    assert told in refused(tmp_path, text)

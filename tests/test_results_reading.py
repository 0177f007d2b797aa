"""Results files are read back as they were written, and what is none is refused in a line."""

import json
import os

import jsonschema
import pytest
from explained import moved_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from nights import Nights
from results_makers import MEMORY, measured_case, session, unmeasured_case
from trainers import TinySystem

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Metric, Sanity, Source, Statistic
from pytest_dlperf.results.file import (
    ResultsFileError,
    encodable,
    json_schema,
    read_results,
    to_json,
    write_json,
)

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
ONE = "paddle-resnet50-fp32-b128-1n1g"
EIGHT = "paddle-resnet50-fp32-b128-1n8g"
BERT = "tensorflow-bert_base-fp16-b96-xla-2n8g"
LOSS = Metric(
    name="loss",
    unit="",
    better=None,
    source=Source.LOG,
    statistic=Statistic.LAST,
    sanity=Sanity(falls=True),
)


def plain_session():
    """What a file holds: two cases that were measured, and one whose reference alone was."""
    bert = unmeasured_case(BERT, Verdict.SKIPPED, "no logs")
    bert = replace(bert, reference=measured_case(BERT.replace("2n8g", "1n1g"), 60.5).measurement)
    one = measured_case(
        ONE, 350.1, 352.7, 351.0, more={MEMORY: [9216.5] * 3, LOSS: [6.5, 6.4, 6.6]}
    )
    eight = measured_case(EIGHT, 2600.0, 2610.5, 2590.0)
    eight = replace(eight, reference=one.measurement)
    return json.loads(to_json(session(one, eight, bert)))


def written(folder, content):
    file = folder / "results.json"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return file


def refused(file):
    """The message that a file is refused with, without the file's name at its beginning."""
    with pytest.raises(ResultsFileError) as caught:
        read_results(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert message.isprintable()
    return message.removeprefix(f"{file}: ")


# ------------------------------------------------------------------------- the round trip


def test_what_is_written_is_read_back(tmp_path):
    one = measured_case(ONE, 350.1, 352.7, more={MEMORY: [9216.5] * 2})
    results = session(one, moved_case(EIGHT, -9.9), unmeasured_case(BERT, Verdict.LOST, "gone"))
    write_json(tmp_path / "results.json", results)
    assert read_results(tmp_path / "results.json") == results


def read_back(suite, results):
    VALIDATOR.validate(results)
    assert json.loads(to_json(read_results(suite.path / "results.json"))) == results


def test_a_session_from_logs_is_read_back(suite):
    nights = Nights(suite)
    suite.judge(*nights.usual("first"), "--dlperf-create-baselines", cluster="local")
    stray = suite.path / "nights" / "tonight" / "1n1g" / "mlp_b4_fp32_x.log"
    arguments = nights.usual("tonight", of_1n2g=0.8)
    stray.write_text("none", encoding="utf-8")
    (suite.path / "nights" / "tonight" / "1n1g" / "mlp_b4_fp32_2.log").write_text(
        "nothing of a training", encoding="utf-8"
    )

    # Failed, passed or regressed; one log is none, another cannot be read.
    _, results = suite.judge(*arguments, cluster="local")

    found = {case["topology"]: case["metrics"]["throughput"] for case in results["cases"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "1n1g": "invalid",
        "1n2g": "regressed",
    }
    assert len(results["ignored_logs"]) == 1
    read_back(suite, results)


@pytest.mark.ci
def test_runs_in_turn_and_failed_attempts_are_read_back(suite):
    tiny = TinySystem(suite, topologies=["1n1g"], launch=["retries: 1"])
    tiny.behave("0.01 die-once-at-5")
    _, results = suite.judge("-k", "tiny", "--dlperf-create-baselines", cluster="local")
    assert results["cases"][0]["measurement"]["runs"][0]["failed_attempts"]
    assert {change["why"] for change in results["baseline_changes"]}
    read_back(suite, results)
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    with cluster.open("a", encoding="utf-8") as opened:
        opened.write("control:\n  vars: {tiny-mlp: {env: {TINY_SLOWER: '1.0'}}}\n")
    tiny.behave("0.02")

    _, results = suite.judge("-k", "tiny and throughput", cluster="local")

    [case] = results["cases"]
    assert case["interleaved"]["control"]["runs"]
    assert case["accepted"]["throughput"]["acceptance"]["at"]
    read_back(suite, results)


# ------------------------------------------------------------------- what programs find


def test_what_is_derived_stands_beside_what_it_is_derived_from():
    one, eight, bert = plain_session()["cases"]
    words = ("id", "system", "framework", "model", "precision", "batch", "topology")
    assert [one[word] for word in words] == [
        ONE, "paddle-resnet50", "paddle", "resnet50", "fp32",
        {"per_replica": 128, "global": 128}, "1n1g",
    ]  # fmt: skip
    assert [run["status"] for run in one["measurement"]["runs"]] == ["ok"] * 3
    assert list(one["metrics"]) == ["throughput", "peak_memory", "loss"]
    memory = one["metrics"]["peak_memory"]
    assert (memory["unit"], memory["better"]) == ("MB", "lower")
    assert (memory["median"], memory["spread"]) == (9216.5, 0.0)
    assert {memory[key] for key in ("verdict", "accepted", "reference", "reason")} == {None}
    throughput = eight["metrics"]["throughput"]
    assert {key: value for key, value in throughput.items() if key != "spread"} == {
        "unit": "images/s", "better": "higher", "median": 2600.0, "mean": pytest.approx(2600.1667),
        "accepted": 2600.0, "reference": 2600.0, "difference_percent": 0.0, "verdict": "pass",
        "reason": None, "efficiency_percent": None,
    }  # fmt: skip
    assert eight["metrics"]["speedup"]["median"] == pytest.approx(2600 / 351)
    assert (bert["measurement"], bert["metrics"]["throughput"]["reason"]) == (None, "no logs")


def test_what_names_do_not_tell_is_described_and_others_are_allowed():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    kinds = {name: kind for name, kind in SCHEMA["$defs"].items() if "properties" in kind}
    assert {"ResultsFile", "CaseEntry", "Run", "Judgement", "LaunchFacts"} <= set(kinds)
    assert all(kind["description"] for kind in kinds.values())
    assert all("description" in rule for rule in kinds["MetricNumbers"]["properties"].values())
    assert '"additionalProperties": false' not in json.dumps(SCHEMA)


def test_values_that_break_the_schema_are_found_by_it():
    for path, value in (
        (("cases", 0, "measurement", "runs", 0, "metrics", "throughput"), "fast"),
        (("cases", 0, "metrics", "throughput", "verdict"), "splendid"),
        (("estimator",), None),
    ):
        broken = plain_session()
        *above, key = path
        holder = broken
        for step in above:
            holder = holder[step]
        holder[key] = value
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(broken)


def everywhere(value, *, by_name=False):
    """The same with a field more in each object whose keys are no names."""
    if isinstance(value, dict):
        is_free = by_name or all(isinstance(item, str) for item in value.values())
        more = {} if is_free else {"of_a_newer_version": [{"a": 1}, None]}
        maps = {"metrics", "accepted", "stored", "judgements", "explanations", "machine"}
        known = {key: everywhere(item, by_name=key in maps) for key, item in value.items()}
        return {**known, **more}
    return [everywhere(item) for item in value] if isinstance(value, list) else value


def test_unknown_fields_are_left_out(tmp_path):
    content = plain_session()
    read = read_results(written(tmp_path, everywhere(content)))
    assert json.loads(to_json(read))["cases"] == content["cases"]


# ------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Input data was truncated"),
        (to_json(session(measured_case(ONE, 350.1)))[:-200], "Input data was truncated"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "JSON is malformed: invalid character"),
        (b"[" * 10_000_000, "Expected `object`, got `array`"),
        (b'{"a": ' + b"[" * 10_000_000, ""),
        (b"{}", "Object missing required field `session`"),
        (b'{"schema": 2, "cases": 7}', "Invalid value 2 - at `$.schema`"),
        (b'{"session": "\\ud800\\u0041"}', "JSON is malformed: invalid "),
        (b'{"interrupted": NaN}', "JSON is malformed: invalid character"),
        (json.dumps({**plain_session(), "started": "yesterday"}).encode(), "'yesterday' is not a "),
    ],
    ids=["empty", "cut", "image", "deep", "deeper", "no keys", "schema", "half", "nan", "time"],
)  # fmt: skip
def test_what_is_no_results_file_is_refused_in_a_line(tmp_path, content, message):
    told = refused(written(tmp_path, content))
    assert told.startswith(f"is no results file of schema 3: {message}")


def test_what_cannot_be_read_is_told(tmp_path):
    assert refused(tmp_path / "none.json") == "cannot be read: No such file or directory"
    assert refused(tmp_path) == "cannot be read: Is a directory"
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == "cannot be read: it is not a regular file"


def places(value, path=()):
    """The places of all values in a document, objects and lists too."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in items:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


ODD = [
    None, True, -1, 0, 1.5, 10**30, "", "\x1b[31m", "\ud800", [], {}, [[]], [None], {"\n": {}},
]  # fmt: skip


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_a_place_is_read_or_refused(data, tmp_path):
    content = plain_session()
    *above, key = data.draw(st.sampled_from(places(content)))
    holder = content
    for step in above:
        holder = holder[step]
    holder[key] = data.draw(st.sampled_from(ODD))
    try:
        read_results(written(tmp_path, content))
    except ResultsFileError as error:
        assert str(error).isprintable()  # noqa: PT017 - one of two good ends


# ------------------------------------------------------------------------- half characters


def test_half_a_character_is_escaped():
    result = measured_case(ONE, 350.1)
    odd = replace(
        result, unfinished=("\ud800", "a"), accepted={"\udcff": result.accepted["throughput"]}
    )
    found = encodable(session(odd)).cases[0]
    assert found.unfinished == ("\\ud800", "a")
    assert list(found.accepted) == ["\\udcff"]
    assert found == replace(odd, unfinished=found.unfinished, accepted=found.accepted)


DISK = """\
framework: disk
model: write
cases: [{topologies: [1n1g]}]
metrics: {bandwidth: {json: disk.write, unit: MB/s, better: higher}}
launch: {devices: cpu, command: ["true"], log_file: result.json}
"""


def test_a_log_that_says_half_a_character_costs_no_results(suite, workers):
    suite.system_file(DISK, "disk-write.yaml")
    (suite.path / "log").write_text('{"disk": {"\\ud800": 1}}', encoding="utf-8")

    _, results = suite.judge(
        "-k", "disk", "--dlperf-logs=disk-write-1n1g=log", *workers, cluster="local"
    )

    [case] = results["cases"]
    assert "disk has no 'write', but \\ud800" in case["metrics"]["bandwidth"]["reason"]
    read_back(suite, results)


OWN_TEST = """
def test_own(dlperf_case, dlperf_measure):
    raise ValueError("half \\ud800 of a character")
"""


def test_a_test_that_says_half_a_character_costs_no_results(suite):
    TinySystem(suite, topologies=["1n1g"])
    (suite.path / "bench_tests" / "test_own.py").write_text(OWN_TEST, encoding="utf-8")

    _, results = suite.judge("-k", "test_own and tiny", cluster="local")

    [case] = results["cases"]
    assert case["metrics"]["throughput"]["reason"].endswith("half \\ud800 of a character")

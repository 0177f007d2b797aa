"""Results files are read back as they were written, and what is none is refused with its place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import date
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest
from growth import calls_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from nights import Nights
from results_makers import MEMORY, THROUGHPUT, measured_case, session, unmeasured_case
from suites import Suite
from trainers import TinySystem

from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.judgement import (
    Explanation,
    Judgement,
    Verdict,
)
from pytest_dlperf.model.measurement import (
    Estimator,
    Fingerprint,
    InterleavedRuns,
    Measurement,
    Run,
    RunStatus,
)
from pytest_dlperf.model.metric import (
    SPEEDUP_METRIC,
    Metric,
    Sanity,
    Source,
    Statistic,
)
from pytest_dlperf.model.results import Accepted, BaselineChange, CaseResult, IgnoredLog, Results
from pytest_dlperf.model.work import Layout, Work
from pytest_dlperf.results import reading
from pytest_dlperf.results.file import MAX_METRICS, json_schema, to_json, write_json
from pytest_dlperf.results.reading import ResultsFileError, read_results

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


def encode(results: Results) -> dict[str, Any]:
    """What the file of a session holds."""
    content: dict[str, Any] = json.loads(to_json(results))
    return content


def plain_session() -> dict[str, Any]:
    """What a file holds: two cases that were measured, and one whose reference alone was."""
    bert = unmeasured_case(BERT, Verdict.SKIPPED, "no logs")
    bert = replace(bert, reference=measured_case(BERT.replace("2n8g", "1n1g"), 60.5).measurement)
    one = measured_case(
        ONE, 350.1, 352.7, 351.0, more={MEMORY: [9216.5] * 3, LOSS: [6.5, 6.4, 6.6]}
    )
    eight = measured_case(EIGHT, 2600.0, 2610.5, 2590.0)
    eight = replace(eight, reference=one.measurement)
    return encode(
        session(
            one,
            eight,
            bert,
        )
    )


def written(folder: Path, content: dict[str, Any] | str | bytes) -> Path:
    file = folder / "results.json"
    if isinstance(content, dict):
        content = json.dumps(content)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def refused(folder: Path, content: dict[str, Any] | str | bytes) -> str:
    """The message that a file is refused with, without the file's name at its beginning."""
    file = written(folder, content)
    with pytest.raises(ResultsFileError) as caught:
        read_results(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert message.isprintable()
    assert len(message) < 1000
    return message.removeprefix(f"{file}: ")


# ------------------------------------------------------------------------- the round trip

# Whatever logs and hosts may hold, also half a pair of surrogates.
texts = st.text(max_size=12) | st.sampled_from(["<script>", "a|b\nc", "\ud800", "\x1b[31m", ""])
positive = st.floats(min_value=0.01, max_value=1e6)
numbers = st.floats(min_value=-1e6, max_value=1e6)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(0, 400),
    float: numbers,
    bool: st.booleans(),
    date: st.dates(),
    type(None): st.none(),
}


def some(kind: Any, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a type as its fields say, so of new fields too; those of ``known`` as given."""
    arguments = get_args(kind)
    origin = get_origin(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if origin in {Union, UnionType}:
        return st.one_of(*map(some, arguments))
    if origin is tuple:
        is_fixed = arguments[-1] is not Ellipsis
        items = st.lists(some(arguments[0]), max_size=2).map(tuple)
        return st.tuples(*map(some, arguments)) if is_fixed else items
    if origin is Mapping:
        return st.dictionaries(*map(some, arguments), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind).items()
    return st.builds(
        kind, **{name: some(hint) for name, hint in hints if name not in known}, **known
    )


names = st.sampled_from(["peak_memory", "loss", "step_time_p95", "of_a_newer_version"])
metrics = some(Metric, name=names, ratio_of=st.none())
# The systems of these tests measure the same.
definitions = st.lists(metrics, max_size=3, unique_by=lambda metric: metric.name).map(
    lambda found: (THROUGHPUT, SPEEDUP_METRIC, *found)
)
estimators = some(Estimator)
accepted_numbers, explained = some(Accepted), some(Explanation)
broken_runs = some(
    Run,
    status=st.sampled_from([RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID]),
    metrics=st.just({}),
    failed_attempts=st.just(()),
)


def runs_of(metrics: Sequence[Metric]) -> st.SearchStrategy[tuple[Run, ...]]:
    whole = some(
        Run,
        status=st.just(RunStatus.OK),
        metrics=st.fixed_dictionaries({}, optional={metric.name: numbers for metric in metrics}),
        failed_attempts=st.lists(broken_runs, max_size=1).map(tuple),
    )
    return st.lists(whole | broken_runs, min_size=1, max_size=3).map(tuple)


trainings = st.builds(
    Case,
    framework=st.sampled_from(["paddle", "ngc_pytorch"]),
    model=st.sampled_from(["resnet50", "bert_base"]),
    precision=st.sampled_from(["fp32", "fp16"]),
    work=st.builds(
        Work,
        batch=st.integers(1, 256),
        sequence_length=st.none() | st.integers(1, 8192),
        layout=st.sampled_from([Layout(), Layout(tp=2), Layout(tp=2, ep=2)]),
    ),
    options=st.sampled_from([(), ("xla",), ("dali", "workers8")]),
    topology=st.builds(Topology, st.integers(1, 4), st.sampled_from([4, 8])),
    reference_topology=st.none() | st.just(Topology(1, 4)),
)
probes = st.builds(
    Case,
    framework=st.just("nccl"),
    model=st.just("tests"),
    free_axes=st.fixed_dictionaries({"size": st.sampled_from(["4k", "1m"])}),
    topology=st.just(Topology(1, 4)),
    reference_topology=st.none(),
)
cases = trainings | probes
changes = some(BaselineChange, old=st.none() | positive, new=positive)


@st.composite
def measurements(
    draw: st.DrawFn, estimator: Estimator, case: Case, metrics: tuple[Metric, ...]
) -> Measurement:
    own = tuple(metric for metric in metrics if metric.ratio_of is None)
    return Measurement(
        case_id=case.id,
        estimator=estimator,
        metrics=own,
        runs=draw(runs_of(own)),
        fingerprint=draw(some(Fingerprint | None)),
        available_runs=draw(st.none() | st.integers(0, 9)),
        logs_digest=draw(st.none() | st.just("d1")),
    )


@st.composite
def case_results(draw: st.DrawFn, estimator: Estimator, metrics: tuple[Metric, ...]) -> CaseResult:
    case = draw(cases)
    arms = measurements(estimator, case, metrics)
    known = st.sampled_from([one for one in metrics if one.ratio_of is None or case.is_scaled])
    judged = draw(st.lists(known, unique=True, max_size=2))
    return CaseResult(
        case=case,
        measurement=draw(st.none() | arms),
        interleaved=draw(st.none() | st.builds(InterleavedRuns, candidate=arms, control=arms)),
        is_whole=draw(st.booleans()),
        unfinished=tuple(metric.name for metric in draw(st.lists(known, max_size=1))),
        accepted={
            metric.name: draw(accepted_numbers) for metric in draw(st.lists(known, max_size=2))
        },
        judgements={
            metric.name: draw(some(Judgement, metric=st.just(metric))) for metric in judged
        },
        explanations={metric.name: draw(explained) for metric in judged[:1]},
    )


@st.composite
def sessions(draw: st.DrawFn) -> Results:
    estimator = draw(estimators)
    metrics = draw(definitions)
    found = draw(
        st.lists(
            case_results(estimator, metrics), max_size=3, unique_by=lambda result: result.case.id
        )
    )
    # What the speedups are taken over: a selected case, or one that was measured for them alone.
    measured = {result.case.id: result.measurement for result in found}
    whole = []
    for result in found:
        over = result.case.reference
        if over is not None and over.id not in measured:
            measured[over.id] = draw(st.none() | measurements(estimator, over, metrics))
        whole.append(replace(result, reference=measured[over.id] if over is not None else None))
    return Results(
        session=draw(st.uuids()).hex,
        cluster=draw(texts.filter(bool)),
        estimator=estimator,
        started="2026-11-20T22:00:00+01:00",
        ended=draw(st.none() | st.just("2026-11-20T23:00:00+01:00")),
        interrupted=draw(st.booleans()),
        environment=draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "host": texts,
                    "processors": st.none() | st.integers(1, 256),
                    "load_average": st.none() | st.lists(positive, max_size=3),
                    "packages": some(Mapping[str, str]),
                },
            )
        ),
        metrics={result.case.system: metrics for result in found},
        cases=tuple(whole),
        unfit_hosts=draw(st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple))),
        ignored_logs=draw(st.lists(st.builds(IgnoredLog, texts, texts), max_size=2).map(tuple)),
        baseline_changes=draw(st.lists(changes, max_size=2).map(tuple)),
    )


@pytest.mark.slow
@given(results=sessions())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_what_is_written_obeys_the_schema_and_is_read_back(
    results: Results, tmp_path: Path
) -> None:
    file = tmp_path / "results.json"
    write_json(file, results)

    valid(json.loads(file.read_text(encoding="utf-8")))
    assert read_results(file) == results


def test_what_no_file_has_is_named(tmp_path: Path) -> None:
    """All else of a session is read back, as the test above has it."""
    result = replace(
        measured_case(ONE, 350.1),
        stored={"throughput": Accepted(number=350.0, estimator="steady")},
    )
    result = replace(result, reference=result.measurement)
    whole = replace(session(result), log_names={"paddle-resnet50": "r50"})

    [read] = (found := read_results(written(tmp_path, encode(whole)))).cases

    assert (read.stored, found.log_names) == ({}, {})
    assert replace(found, log_names=whole.log_names) == replace(
        whole, cases=(replace(result, stored={}),)
    )


def test_a_reference_without_a_test_of_its_own_is_read_back(tmp_path: Path) -> None:
    eight = measured_case(EIGHT, 2600.0, 2610.5, 2590.0, speedup=7.4)
    content = valid(encode(session(eight)))

    [read] = read_results(written(tmp_path, content)).cases

    assert read.reference == eight.reference
    assert read.speedup == pytest.approx(7.4)
    content["reference_measurements"] *= 2
    message = refused(tmp_path, content)
    place = "$.reference_measurements[1].case_id"
    assert message.startswith(f'{place}: "{ONE}" stands in the file twice; ')


def test_the_values_are_those_of_the_session(tmp_path: Path) -> None:
    read = read_results(written(tmp_path, plain_session()))

    one, eight, bert = read.cases
    assert eight.measurement is not None
    assert eight.measurement.samples("throughput").values == (2600.0, 2610.5, 2590.0)
    assert eight.measurement.estimator is Estimator.STEADY
    assert eight.reference == one.measurement
    assert eight.speedup == pytest.approx(2600.0 / 351.0)
    judgement = eight.judgements["throughput"]
    assert (judgement.verdict, judgement.measured, judgement.accepted) == (
        Verdict.PASS, 2600.0, 2600.0,
    )  # fmt: skip
    assert judgement.interval_percent == (-0.5, 0.7)
    assert "speedup" not in eight.judgements
    assert bert.measurement is None
    assert bert.judgements["throughput"].verdict is Verdict.SKIPPED
    assert bert.judgements["throughput"].reason == "no logs"


def test_a_metric_that_nobody_knows_here_is_read_as_its_file_defines_it(tmp_path: Path) -> None:
    """Names are data: a metric is one entry of a system's file, not of this program."""
    [one, *_] = read_results(written(tmp_path, plain_session())).cases
    found = one.metrics()
    assert list(found) == ["throughput", "peak_memory", "loss"]
    assert found["peak_memory"].metric == MEMORY
    assert found["loss"].metric == LOSS
    assert (found["peak_memory"].median, found["loss"].median) == (9216.5, 6.5)
    assert found["peak_memory"].judgement is None


def test_a_metric_that_is_not_judged_has_no_verdict_and_stands_in_the_file() -> None:
    [one, *_] = plain_session()["cases"]
    memory = one["metrics"]["peak_memory"]
    assert (memory["unit"], memory["better"]) == ("MB", "lower")
    assert (memory["median"], memory["spread"]) == (9216.5, 0.0)
    assert {memory[key] for key in ("verdict", "accepted", "reference", "gate")} == {None}


# ------------------------------------------------------------------------- the schema


def test_every_field_is_described_and_others_are_allowed() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    kinds = {name: kind for name, kind in SCHEMA["$defs"].items() if "properties" in kind}
    assert {"ResultsFile", "CaseEntry", "Run", "Judgement", "LaunchFacts"} - set(kinds) == {
        "Judgement"
    }
    for name, kind in kinds.items():
        for field, rule in kind["properties"].items():
            assert "description" in rule, f"{name}.{field}"
    assert '"additionalProperties": false' not in json.dumps(SCHEMA)


def test_values_that_break_the_schema_are_refused() -> None:
    """Programs that read the file by its schema find the mistakes that we find."""
    content = plain_session()
    for path, value in (
        (("cases", 0, "runs", 0, "metrics", "throughput"), "fast"),
        (("cases", 0, "metrics", "throughput", "verdict"), "splendid"),
        (("cases", 0, "runs", 0, "steps"), -1),
        (("estimator",), None),
    ):
        broken: Any = deepcopy(content)
        *above, key = path
        holder = broken
        for step in above:
            holder = holder[step]
        holder[key] = value
        with pytest.raises(jsonschema.ValidationError):
            valid(broken)


def valid(results: dict[str, Any]) -> dict[str, Any]:
    VALIDATOR.validate(results)
    return results


def verdict_of(case: dict[str, Any]) -> str | None:
    verdict: str | None = case["metrics"]["throughput"]["verdict"]
    return verdict


def test_a_session_from_logs_obeys_the_schema(suite: Suite) -> None:
    nights = Nights(suite)
    suite.judge(*nights.usual("first"), "--dlperf-create-baselines", cluster="local")
    stray = suite.path / "nights" / "tonight" / "1n1g" / "mlp_b4_fp32_x.log"
    arguments = nights.usual("tonight", of_1n2g=0.8)
    stray.write_text("none", encoding="utf-8")
    (suite.path / "nights" / "tonight" / "1n1g" / "mlp_b4_fp32_9.log").write_text(
        "nothing of a training", encoding="utf-8"
    )

    # Failed, passed or regressed; one log is none, another cannot be read.
    _, results = suite.judge(*arguments, cluster="local")

    valid(results)
    verdicts = {case["topology"]: verdict_of(case) for case in results["cases"]}
    assert verdicts == {"1n1g": "invalid", "1n2g": "regressed"}
    assert len(results["ignored_logs"]) == 1
    read = read_results(suite.path / "results.json")
    assert encode(read) == results


def test_a_session_that_launches_and_accepts_obeys_the_schema(suite: Suite) -> None:
    TinySystem(suite, alone=False)

    _, results = suite.judge("-k", "tiny or paddle", "--dlperf-create-baselines", cluster="local")

    assert {change["why"] for change in valid(results)["baseline_changes"]}
    assert {verdict_of(case) for case in results["cases"]} == {"pass", "skipped"}
    assert encode(read_results(suite.path / "results.json")) == results


@pytest.mark.ci
def test_runs_in_turn_and_failed_attempts_obey_the_schema(suite: Suite) -> None:
    tiny = TinySystem(suite, topologies=["1n1g"], launch=["retries: 1"])
    tiny.behave("0.01 die-once-at-5")
    _, results = suite.judge("-k", "tiny", "--dlperf-create-baselines", cluster="local")
    assert valid(results)["cases"][0]["runs"][0]["failed_attempts"]
    assert encode(read_results(suite.path / "results.json")) == results
    cluster = suite.path / "baselines" / "local" / "cluster.yaml"
    with cluster.open("a", encoding="utf-8") as opened:
        opened.write("control:\n  vars: {tiny-mlp: {env: {TINY_SLOWER: '1.0'}}}\n")
    tiny.behave("0.02")

    _, results = suite.judge("-k", "tiny and throughput", cluster="local")

    [case] = valid(results)["cases"]
    assert case["interleaved"]["control"]["runs"]
    assert case["metrics"]["throughput"]["baseline"]["acceptance"]["at"]
    assert encode(read_results(suite.path / "results.json")) == results


# ------------------------------------------------------------------------- other versions


def everywhere(value: Any, *, by_name: bool = False) -> Any:
    """The same with a field more in each object whose keys are no names."""
    if isinstance(value, dict):
        is_free = by_name or all(isinstance(item, str) for item in value.values())
        more = {} if is_free else {"of_a_newer_version": [{"a": 1}, None]}
        known = {key: everywhere(item, by_name=key == "metrics") for key, item in value.items()}
        return {**known, **more}
    return [everywhere(item) for item in value] if isinstance(value, list) else value


def test_unknown_fields_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    content = plain_session()
    newer = everywhere(content)
    assert encode(read_results(written(tmp_path, newer)))["cases"] == content["cases"]


def test_an_unknown_verdict_of_a_newer_version_is_named(tmp_path: Path) -> None:
    content = plain_session()
    content["cases"][1]["metrics"]["throughput"]["verdict"] = "splendid"
    message = refused(tmp_path, content)
    place = "$.cases[1].metrics.throughput.verdict"
    assert message.startswith(f'{place}: found "splendid", which this version does not know')


# ------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (3, "$.schema: found 3; this version of pytest-dlperf reads schema 2, so update it"),
        (1, "$.schema: found 1; this version of pytest-dlperf reads schema 2, so judge the "),
        ("2", '$.schema: found "2"; '),
    ],
)
def test_other_schemas_are_refused(tmp_path: Path, schema: object, message: str) -> None:
    # Of another form nothing is known, so nothing else is complained of.
    assert refused(tmp_path, {"schema": schema, "cases": 7}).startswith(message)


def change_run(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda plain: plain["cases"][1]["runs"][0].update({key: value})


def drop_median(plain: dict[str, Any]) -> None:
    del plain["cases"][0]["metrics"]["peak_memory"]["median"]


def undefine_memory(plain: dict[str, Any]) -> None:
    defined = plain["metrics"]["paddle-resnet50"]
    defined[:] = [metric for metric in defined if metric["name"] != "peak_memory"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_run("metrics", {"throughput": "fast"}),
         '$.cases[1].runs[0].metrics.throughput: found "fast"; expected `float`'),
        (change_run("status", "hung"),
         '$.cases[1].runs[0].status: found "hung"; a run with metrics is ok'),
        (undefine_memory,
         '$.cases[0].metrics: "peak_memory" is not defined in $.metrics.paddle-resnet50'),
        (lambda plain: plain["cases"][0].update(metrics={}),
         "$.cases[0].metrics: is empty; "),
        (lambda plain: plain["reference_measurements"][0].update(estimator="published"),
         "$.reference_measurements[0].estimator: found published; the session's is steady"),
        (lambda plain: plain["cases"][0].update(reference_topology="1n0g"),
         '$.cases[0].reference_topology: found "1n0g"; '),
        (change_run("steps", 10**30), "$.cases[1].runs[0].steps: found 1000"),
        (drop_median, "$.cases[0].metrics.peak_memory: the key 'median' is missing"),
        (lambda plain: plain["cases"].append(plain["cases"][0]),
         f'$.cases[3].id: "{ONE}" stands in the file twice; each case has one entry'),
        (lambda plain: plain["cases"][0].update(id="\x1b[31m|x"),
         '$.cases[0].id: found "\\u001b[31m|x"; the form is <framework>-<model>-'),
        (lambda plain: plain.update(started="yesterday"),
         '$.started: found "yesterday"; expected ISO 8601 with its zone'),
    ],
)  # fmt: skip
def test_the_place_of_a_mistake_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    content = plain_session()
    change(content)
    assert refused(tmp_path, content).startswith(message)


def test_a_mistake_beside_half_a_pair_of_surrogates_is_named(tmp_path: Path) -> None:
    content = plain_session()
    content["metrics"]["paddle-resnet50"][0]["name"] = None
    content["cases"][0] = "\ud800"
    place = "$.metrics.paddle-resnet50[0].name"
    assert refused(tmp_path, content) == f"{place}: found null; expected `str`"
    del content["metrics"]["paddle-resnet50"]
    assert refused(tmp_path, content) == 'found "\\ud800", which is not valid there'


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a document, objects and lists too."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in items:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += leaves(item, (*path, key))
    return found


ODD: list[Any] = [
    None, True, -1, 0, 1.5, 10**18, "", "x", "\ud800", [], {}, [[]], [None], {"a": {}}, [1, {}],
]  # fmt: skip


def test_a_speedup_over_a_case_without_its_throughput_is_none(tmp_path: Path) -> None:
    content = plain_session()
    del content["cases"][0]["metrics"]["throughput"]  # the second has a speedup over it
    read = read_results(written(tmp_path, content))
    assert read.cases[1].reference is not None
    assert read.cases[1].speedup is None
    valid(encode(read))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_whatever_stands_in_a_place_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    content = plain_session()
    for _ in range(data.draw(st.integers(1, 2))):
        *above, key = data.draw(st.sampled_from(leaves(content)))
        holder: Any = content
        for step in above:
            holder = holder[step]
        if isinstance(holder, dict) and data.draw(st.booleans()):
            del holder[key]
        else:
            # The next change may be one of what stands there now.
            holder[key] = deepcopy(data.draw(st.sampled_from(ODD)))
    try:
        read = read_results(written(tmp_path, content))
    except ResultsFileError as error:
        assert str(error).isprintable()  # noqa: PT017 - one of two good ends
    else:
        valid(encode(read))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (json.dumps(plain_session())[:-200], "is not JSON: "),
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "is not JSON: "),
        ("[" * 200_000, "is nested too deeply to be a results file"),
        ("{}", "holds no results: $.schema is missing"),
    ],
    ids=["empty", "truncated", "image", "deep", "object"],
)  # fmt: skip
def test_what_is_no_results_file_is_refused(
    tmp_path: Path, content: bytes | str, message: str
) -> None:
    assert refused(tmp_path, content).startswith(message)


def test_two_values_of_a_key_are_refused(tmp_path: Path) -> None:
    text = json.dumps(plain_session())[:-1] + ', "cluster": "another"}'
    assert refused(tmp_path, text).startswith('the key "cluster" stands in an object twice')


@pytest.mark.parametrize("levels", [60, 900, 100_000])
def test_deep_nesting_is_refused_wherever_it_stands(tmp_path: Path, levels: int) -> None:
    text = json.dumps(plain_session())[:-1] + f', "x": {"[" * levels}{"]" * levels}}}'
    assert refused(tmp_path, text).startswith("is nested too deeply")


def test_more_numbers_than_any_session_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_NUMBERS", 5)
    assert "the metrics of each case times its runs" in refused(tmp_path, plain_session())
    content = plain_session()
    content["metrics"]["paddle-resnet50"] *= MAX_METRICS
    place = "$.metrics.paddle-resnet50"
    assert refused(tmp_path, content).startswith(f"{place}: found a list of 4000; expected `array`")


def test_the_work_of_reading_grows_with_the_file_and_no_faster(tmp_path: Path) -> None:
    def calls(cases: int) -> int:
        content = plain_session()
        one = content["cases"][0]
        more = [f"paddle-resnet50-fp32-b{number}-1n1g" for number in range(1000, 1000 + cases)]
        content["cases"] += [{**one, "id": case_id, "reference_topology": None} for case_id in more]
        file = written(tmp_path, content)
        return calls_of(lambda: read_results(file))

    calls(1)  # imports
    assert calls(800) < 5 * calls(200)


def test_a_file_that_is_too_large_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 2**20)
    file = written(tmp_path, b"")
    os.truncate(file, 2**40)
    with pytest.raises(ResultsFileError, match="larger than 1 MiB"):
        read_results(file)


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(ResultsFileError, match=r"none\.json: cannot be read: No such file"):
        read_results(tmp_path / "none.json")
    with pytest.raises(ResultsFileError, match=r"cannot be read: Is a directory"):
        read_results(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ResultsFileError, match="cannot be read: it is not a regular file"):
        read_results(tmp_path / "pipe")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_that_windows_has_written_again_is_read(tmp_path: Path, encoding: str) -> None:
    content = json.dumps(plain_session()).encode(encoding)
    assert len(read_results(written(tmp_path, content)).cases) == 3

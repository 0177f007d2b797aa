"""Picking cases out of the matrix by words and by exact values."""

import re

import pytest

from pytest_dlperf.model.case import Case

pytestmark = pytest.mark.in_process


def collected(suite, *arguments):
    """Cases by test function."""
    result = suite.run("--collect-only", "-q", *arguments)
    assert result.ret == 0
    found = {}
    for line in result.outlines:
        match = re.fullmatch(r"\S+\.yaml::test_(throughput|speedup)\[(.+)\]", line)
        if match:
            found.setdefault(match[1], []).append(Case.from_id(match[2]))
    return found


def test_the_published_matrix_is_complete_and_has_its_smoke_cases(suite):
    found = collected(suite, "--dlperf-cluster", "dlperf-v100")

    assert {name: len(cases) for name, cases in found.items()} == {"throughput": 115, "speedup": 94}
    assert len({case.id for case in found["throughput"]}) == 115
    assert set(found["speedup"]) == {
        case for case in found["throughput"] if case.topology.world_size > 1
    }
    smoke = collected(suite, "-m", "smoke")
    assert sorted(str(case.topology) for case in smoke["throughput"]) == ["1n1g", "1n2g", "2n1g"]
    assert sorted(str(case.topology) for case in smoke["speedup"]) == ["1n2g", "2n1g"]


@pytest.mark.parametrize(
    ("expression", "count", "of"),
    [
        ("framework='paddle', topology='4n8g'", 5, {"framework": "paddle"}),
        ("precision='fp16', nodes=2", 8, {"precision": "fp16"}),
        ("batch_per_replica=96", 12, {"batch_per_replica": 96}),
        ("tp=1, model='bert_base', topology='4n8g'", 11, {"model": "bert_base"}),
        ("system='ngc_pytorch-resnet50', devices_per_node=8", 1, {"framework": "ngc_pytorch"}),
    ],
)
def test_a_corner_is_picked_by_exact_values(suite, expression, count, of):
    found = collected(suite, "-m", f"dlperf({expression})")["throughput"]

    assert len(found) == count
    for case in found:
        assert {name: getattr(case, name) for name in of} == of


@pytest.mark.parametrize("words", ["bert and 4n8g", "paddle", "ngc", "resnet50", "fp16"])
def test_a_corner_is_picked_by_words_of_its_cases_alone(suite, words):
    """No name of a file, a function or a marker meddles with them."""
    found = collected(suite, "-k", words)
    assert found["throughput"]
    for case in (case for cases in found.values() for case in cases):
        assert all(word in case.id for word in words.split(" and "))


def test_a_user_can_write_a_third_test(suite):
    (suite.path / "bench_tests" / "test_own.py").write_text(
        "def test_is_measured(dlperf_case, dlperf_measure):\n"
        "    assert dlperf_measure(dlperf_case).samples('throughput').median > 0\n",
        encoding="utf-8",
    )
    from trainers import TinySystem

    TinySystem(suite)
    result = suite.run("-k", "test_is_measured and tiny", "--dlperf-repeats", "1")
    result.assert_outcomes(passed=3)


def test_another_plugin_can_add_systems_and_log_formats(suite):
    extra = suite.path / "elsewhere.yaml"
    extra.write_text(
        "framework: other\nmodel: net\nunit: images/s\nlog: {name: net, format: theirs}\n"
        "window: {warmup_steps: 0, measured_steps: 1}\n"
        "cases: [{precision: fp32, batch_per_device: 1, topologies: [1n1g]}]\n",
        encoding="utf-8",
    )
    suite.pytester.makeconftest(
        "from pathlib import Path\n"
        "from pytest_dlperf.formats.log_format import custom_format\n"
        f"def pytest_dlperf_system_files(config): return [Path({str(extra)!r})]\n"
        "def pytest_dlperf_log_formats(config):\n"
        "    record = r'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'\n"
        "    return [custom_format('theirs', record=record)]\n"
    )
    assert [case.id for case in collected(suite, "-k", "other")["throughput"]] == [
        "other-net-fp32-b1-1n1g"
    ]


def test_selecting_by_a_metric_looks_at_each_test_a_few_times(suite, monkeypatch):
    hashed = 0

    def counted(item):
        nonlocal hashed
        hashed += 1
        return hash(item.nodeid)

    monkeypatch.setattr(pytest.Item, "__hash__", counted)
    result = suite.run("--collect-only", "-q", "--dlperf-metric", "speedup")
    tests = result.parseoutcomes()["tests"]
    assert tests > 200
    assert tests < hashed < 60 * tests

"""The ``metrics`` of a system file: what it declares, and mistakes in it."""

import pytest

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.declared import Over
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.metric import Better, Sanity, Statistic

TEXT = """\
framework: megatron
model: gpt
unit: tokens/s
log: {name: gpt, format: dlperf}
window: {warmup_steps: 2, measured_steps: 8}
metrics: {%s}
cases:
  - {precision: bf16, global_batch: 8, sequence_length: 128, topologies: [1n1g], %s}
"""
RECORD = "record: 'allocated (?P<value>[^ ]+)'"


def declared(path, metrics, case=""):
    file = path / "own.yaml"
    file.write_text(TEXT % (metrics, case), encoding="utf-8")
    return load_systems([file], BUILTIN_FORMATS)["megatron-gpt"]


def mistake(path, metrics):
    with pytest.raises(YamlError) as raised:
        declared(path, metrics)
    [problem] = raised.value.diagnostics
    assert problem.place.endswith("own.yaml:6")
    return problem.message


def test_the_throughput_comes_first_and_what_costs_nothing_is_recorded(tmp_path):
    metrics = declared(tmp_path, "").metrics
    assert [(metric.name, metric.unit, metric.is_judged) for metric in metrics] == [
        ("throughput", "tokens/s", True),
        ("speedup", "x", True),
        ("throughput_per_device", "tokens/s/device", False),
    ]
    with_flops = declared(tmp_path, "", "flops_per_token: 1.0e+9").metrics
    assert (with_flops[-1].name, with_flops[-1].is_judged) == ("mfu", False)


def test_a_built_in_metric_that_is_named_is_judged(tmp_path):
    system = declared(
        tmp_path,
        "step_time_p95: {tolerance_percent: 10}, first_step_time: {judged: false}, "
        "throughput: {tolerance_percent: 3}, throughput_per_device: {}",
    )
    by_name = {metric.name: metric for metric in system.metrics}
    assert by_name["step_time_p95"].is_judged
    assert by_name["step_time_p95"].tolerance_percent == 10
    assert by_name["step_time_p95"].better is Better.LOWER
    assert by_name["throughput_per_device"].is_judged
    assert not by_name["first_step_time"].is_judged
    assert by_name["throughput"].tolerance_percent == 3
    assert system.declared == ()


def test_a_tolerance_is_kept_in_the_unit_of_its_metric(tmp_path):
    system = declared(
        tmp_path,
        "first_step_time: {tolerance_percent: 20, tolerance_at_least: 2 s}, "
        "step_time_p99: {tolerance_at_least: 0.5}, "
        "throughput: {tolerance_at_least: 3 tokens/s}, "
        f"wait: {{{RECORD}, unit: s, better: lower, tolerance_at_least: 50 ms}}",
    )
    by_name = {metric.name: metric for metric in system.metrics}
    first, p99, wait = (by_name[name] for name in ("first_step_time", "step_time_p99", "wait"))
    assert (first.tolerance_percent, first.tolerance_at_least) == (20, 2.0)
    assert (p99.tolerance_percent, p99.tolerance_at_least) == (None, 0.5)
    assert wait.tolerance_at_least == pytest.approx(0.05)
    assert by_name["throughput"].tolerance_at_least == 3


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("tolerance_at_least: 2 MB", "'MB' is worth in 's'"),
        ("tolerance_at_least: -2 s", "'-2 s' is not a number above 0 with its unit"),
        ("tolerance_at_least: soon", "'soon' is not a number above 0 with its unit"),
    ],
)
def test_a_tolerance_that_cannot_be_used_is_told(tmp_path, said, expected):
    assert expected in mistake(tmp_path, f"first_step_time: {{{said}}}")


def test_a_metric_of_the_log_says_how_it_is_read_and_judged(tmp_path):
    system = declared(
        tmp_path,
        f"peak: {{{RECORD}, unit: GB, printed_in: MiB, better: lower, statistic: max, node: each, "
        f"tolerance_percent: 2, sanity: {{below: 80, above: -1.5}}}}, "
        "loss: {record: 'loss (?P<value>[^ ]+)'}, "
        f"total: {{{RECORD}, judged: false, over: run}}",
    )
    peak, loss, total = system.declared
    assert [each.metric for each in system.declared] == list(system.metrics[-3:])
    assert (peak.metric.unit, peak.printed_in, peak.node) == ("GB", "MiB", WhichNode.EACH)
    assert (peak.metric.better, peak.metric.statistic) == (Better.LOWER, Statistic.MAX)
    assert peak.metric.sanity == Sanity(below=80, above=-1.5)
    assert (loss.metric.sanity, loss.metric.better) == (Sanity(finite=True), None)
    assert (loss.node, loss.over, loss.metric.statistic) == (
        WhichNode.FIRST,
        Over.WINDOW,
        Statistic.MEDIAN,
    )
    assert (total.over, total.metric.statistic) == (Over.RUN, Statistic.LAST)
    assert not total.metric.is_judged


@pytest.mark.parametrize(
    ("metrics", "key", "told"),
    [
        (f"topology: {{{RECORD}, better: lower}}", "topology", "another name"),
        (f"Peak: {{{RECORD}, better: lower}}", "Peak", "lower-case"),
        (f"peak: {{{RECORD}}}", "peak", "'judged: false'"),
        (f"peak: {{{RECORD}, sanity: falls, tolerance_percent: 3}}", "peak", "'better'"),
        (f"peak: {{{RECORD}, judged: false, tolerance_percent: 3}}", "peak", "'better'"),
        ("peak: {record: 'used (?P<value>[0-9.]+)', sanity: finite}", "peak", "takes no NaN"),
        (f"peak: {{{RECORD}, better: lower, unit: MB, printed_in: s}}", "peak", "'s' is worth"),
        ("peak: {better: lower}", "peak", "one of 'record', 'json' and 'csv'"),
        ("peak: {record: 'peak [0-9]+', better: lower}", "peak", "no group 'value'"),
        ("peak: {record: 'p (?P<val>[0-9]+)', better: lower}", "peak", "in place of (?P<val>"),
        ("peak: {record: '(?P<value>.)(?P<epoch>.)', better: lower}", "peak", "the group epoch"),
        ("peak: {record: '(?P<value>', better: lower}", "peak", "not a regular expression"),
        ("peak: {record: '(?P<value>.*)', better: lower}", "peak", "empty text"),
        ("step_time_p95: {better: higher}", "step_time_p95.better", "allowed: tolerance_percent"),
        ("mfu: {}", "mfu", "flops_per_token"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(tmp_path, metrics, key, told):
    message = mistake(tmp_path, metrics)
    assert message.startswith(f"$.metrics.{key}: ")
    assert told in message

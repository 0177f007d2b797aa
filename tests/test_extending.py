"""``extends``: a system file that says only what differs from another one."""

import pytest

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

BASE = """\
framework: own
unit: tokens/s
log:
  name: gpt
  format:
    record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'
    facts: {global_batch: 'batch ([0-9]+)', precision: 'precision (\\w+)'}
window: {warmup_steps: 5, measured_steps: 20}
metrics:
  loss: {record: 'loss (?P<value>[-+.0-9A-Za-z]+)', sanity: falls}
  memory: {record: 'memory (?P<value>[0-9.]+)', unit: GB, better: lower}
launch:
  variables:
    config: {meaning: what to train, default: debug}
  command: [python, train.py, "--config={config}"]
  environment: {A: 1, B: 2}
"""

OWN = """\
extends: ../base.yaml
model: llama
log: {format: {facts: {precision: }}}
window: {measured_steps: 100}
metrics:
  memory: {tolerance_percent: 2}
launch:
  variables: {config: {default: llama_8b}}
  arguments: [--compile, {when: {nodes: 2}, arguments: [--many]}]
  environment: {B: 3}
cases:
  - {precision: bf16, global_batch: 8, sequence_length: 128, topologies: [1n1g, 2n1g]}
"""


def load(tmp_path, own=OWN, base=BASE):
    (tmp_path / "base.yaml").write_text(base, encoding="utf-8")
    file = tmp_path / "systems" / "own.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(own, encoding="utf-8")
    (system,) = load_systems([file], BUILTIN_FORMATS).values()
    return system


def mistakes(tmp_path, own=OWN, base=BASE):
    with pytest.raises(YamlError) as caught:
        load(tmp_path, own, base)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.diagnostics]


def test_only_what_differs_is_said(tmp_path):
    system = load(tmp_path)
    assert (system.id, system.unit, system.log_name) == ("own-llama", "tokens/s", "gpt")
    assert (system.window.warmup_steps, system.window.measured_steps) == (5, 100)
    assert [fact.name for fact in system.log_format.facts] == ["global_batch"]
    metrics = {metric.name: metric for metric in system.metrics}
    assert metrics["memory"].tolerance_percent == 2
    assert metrics["memory"].unit == "GB"
    assert "loss" in metrics
    spec = system.launch
    assert spec.variables["config"].default == "llama_8b"
    assert spec.environment == {"A": "1", "B": "3"}
    assert system.file == tmp_path / "systems" / "own.yaml"


@pytest.mark.parametrize(
    ("command", "one", "two"),
    [
        ('[python, "--config={config}"]', "python --config={config} --compile", " --many"),
        ("[run, --, '{arguments}', x]", "run -- --compile", " --many x"),
        ("[run, '{extra_arguments}', x]", "run --compile", " --many {extra_arguments} x"),
        ("[run, {when: {precision: fp16}, arguments: [--half]}]", "run --compile", " --many"),
    ],
)
def test_arguments_stand_behind_those_of_the_base_or_where_it_says(tmp_path, command, one, two):
    """Conditions of a base may be for other cases."""
    system = load(tmp_path, base=BASE.replace('[python, train.py, "--config={config}"]', command))
    alone, many = (" ".join(system.launch.arguments(case)) for case in system.cases)
    assert many == one + two
    assert alone == many.replace(" --many", "")


@pytest.mark.parametrize("nothing", ["[]", "~"])
def test_the_modules_that_a_base_requires_are_taken_away(tmp_path, nothing):
    base = BASE.replace("  environment:", "  requires_modules: [torch]\n  environment:")
    own = OWN.replace("  environment:", f"  requires_modules: {nothing}\n  environment:")
    assert load(tmp_path, base=base).launch.requires_modules == ("torch",)
    assert load(tmp_path, own, base).launch.requires_modules == ()


def test_a_base_may_extend_another(tmp_path):
    (tmp_path / "first.yaml").write_text(BASE, encoding="utf-8")
    system = load(tmp_path, base="extends: first.yaml\nunit: samples/s\nlaunch: {retries: 2}\n")
    assert system.unit == "samples/s"
    assert system.launch.retries == 2
    assert system.launch.command[0] == "python"


def test_a_mistake_is_told_where_it_stands(tmp_path):
    base = BASE.replace("unit: tokens/s", "unit: [tokens]")
    own = OWN.replace("measured_steps: 100", "measured_steps: many")
    first, second = sorted(mistakes(tmp_path, own, base))
    assert first.startswith("base.yaml:2: $.unit: found a list")
    assert second.startswith("systems/own.yaml:4: $.window.measured_steps: found 'many'")


def test_a_mistake_of_the_base_that_is_read_later_is_told_there_too(tmp_path):
    (mistake,) = mistakes(tmp_path, base=BASE.replace("{config}", "{confg}"))
    assert mistake.startswith("base.yaml:15: $.launch.command[2]:")
    assert "{confg}" in mistake
    (mistake,) = mistakes(tmp_path, OWN.replace("--many", "'{nods}'"))
    assert mistake.startswith("systems/own.yaml:9: $.launch.arguments[1].arguments[0]:")


@pytest.mark.parametrize(
    ("own", "base", "expected"),
    [
        (OWN.replace("model: llama\n", ""), BASE,
         "systems/own.yaml:1: $: the key 'model' is missing"),
        (f"{OWN}unit:\n", BASE, "systems/own.yaml:1: $: the key 'unit' is missing"),
        (f"{OWN}model: other\n", BASE, "systems/own.yaml:13: $.model: duplicate key; the first is"),
        (f"{OWN}extends: ../base.yaml\n", BASE, "systems/own.yaml:13: $.extends: duplicate key"),
        (f"{OWN}? [a, b]\n: c\n", BASE, "systems/own.yaml:13: $: found a list"),
        (OWN, f"{BASE}? {{a: b}}\n: c\n", "base.yaml:17: $: found a mapping"),
        (OWN, "- a\n", "base.yaml:1: $: found a list"),
        (OWN, "some text\n", "base.yaml:1: $: found 'some text'"),
        (OWN, "extends: systems/own.yaml\n",
         "base.yaml:1: $.extends: 'systems/own.yaml' extends this file"),
    ],
)  # fmt: skip
def test_what_both_files_do_not_make_whole_is_told(tmp_path, own, base, expected):
    (mistake,) = mistakes(tmp_path, own, base)
    assert mistake.startswith(expected)


@pytest.mark.parametrize(
    ("extends", "expected"),
    [
        ("../bass.yaml", "there is no file "),
        ("torchtitan_of_my_own", "unknown system 'torchtitan_of_my_own'"),
        ("[a, b]", "found a list"),
        ("own.yaml", "'own.yaml' extends this file in turn"),
    ],
)
def test_an_unknown_base_is_told(tmp_path, extends, expected):
    (mistake,) = mistakes(tmp_path, OWN.replace("../base.yaml", extends))
    assert mistake.startswith("systems/own.yaml:1: $.extends: ")
    assert expected in mistake


def test_the_session_says_what_the_base_gave(pytester):
    """From the command line: the plan of a case that is written in two files."""
    pytester.makefile(".yaml", base=BASE)
    pytester.mkdir("bench_tests").joinpath("systems").mkdir()
    pytester.path.joinpath("bench_tests/systems/own.yaml").write_text(
        OWN.replace("../base", "../../base"), encoding="utf-8"
    )
    pytester.path.joinpath("bench_tests/test_it.py").write_text(
        "def test_it(dlperf_case, dlperf_measure, dlperf_gate): pass\n", encoding="utf-8"
    )
    result = pytester.runpytest_inprocess(
        "bench_tests", "--dlperf-dry-run", "-k1n1g", "--dlperf-set=own-llama.extra_args=--more"
    )
    result.stdout.fnmatch_lines(["*train.py*--config=llama_8b*--compile*--more*"])

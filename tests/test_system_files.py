"""System files: what they declare, and how their mistakes are told."""

from pathlib import Path

import pytest

from pytest_dlperf.config.launch_keys import Devices, StartOn, VariableKind
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.keyed import JsonKeys
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.work import Covers, StepsIn, Timing

SYSTEMS = Path(__file__).parent.parent / "bench_tests" / "systems"

GOOD = """\
framework: paddle
model: resnet50
unit: images/s
log:
  name: r50
  format: paddle_resnet
window:
  warmup_steps: 20
  measured_steps: 100
cases:
  - precision: fp32
    batch_per_device: 128
    topologies: [1n1g, 4n8g]
  - precision: fp16
    batch_per_device: 196
    options: [dali]
    topologies: [1n1g]
"""


def load(tmp_path, text):
    file = tmp_path / "paddle-resnet50.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    (system,) = load_systems([file], BUILTIN_FORMATS).values()
    return system


def mistakes(tmp_path, text):
    """The mistakes of a file, without the part that names it."""
    with pytest.raises(YamlError) as caught:
        load(tmp_path, text)
    file = tmp_path / "paddle-resnet50.yaml"
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.diagnostics]


def test_a_file_declares_a_system_and_its_cases(tmp_path):
    system = load(tmp_path, GOOD)

    assert system.id == "paddle-resnet50"
    assert [case.id for case in system.cases] == [
        "paddle-resnet50-fp32-b128-1n1g",
        "paddle-resnet50-fp32-b128-4n8g",
        "paddle-resnet50-fp16-b196-dali-1n1g",
    ]
    assert (system.repeats, system.tolerance_percent) == (5, 5.0)
    assert system.launch is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("unit: images/s\n", "", "1: $: the key 'unit' is missing"),
        ("unit: images/s\n", "unit: images/s\nrepeat: 3\n",
         "4: $.repeat: unknown key 'repeat'; allowed: flops_per_token, flops_per_sample, framew"),
        ("format: paddle_resnet\n", "format: paddle_resent\n",
         "6: $.log.format: found 'paddle_resent'; allowed: "),
        ("[1n1g, 4n8g]", "[1n1g, 4x8]",
         "13: $.cases[0].topologies[1]: found '4x8'; allowed: a topology such as 4n8g"),
        ("[1n1g, 4n8g]", "[1n1g, 1n1g]",
         "13: $.cases[0].topologies[1]: paddle-resnet50-fp32-b128-1n1g is named twice; first on"),
        ("batch_per_device: 128", "batch_per_device: 0",
         "12: $.cases[0].batch_per_device: found '0'; allowed: integer ≥ 1 and ≤ 1,000"),
        ("batch_per_device: 128", "batch_per_device: [128, many]",
         "12: $.cases[0].batch_per_device[1]: found 'many'; allowed: "),
        ("batch_per_device: 128", "batch_per_device: [8, 8]",
         "13: $.cases[0].topologies[0]: paddle-resnet50-fp32-b8-1n1g is named twice"),
        ("model: resnet50", "model: ResNet-50",
         "2: $.model: found 'ResNet-50'; allowed: a name of lower-case letters, digits and "),
        ("unit: images/s\n", "unit: images/s\nmodel: resnet50\n",
         "4: $.model: duplicate key; the first is on line 2"),
        ("precision: fp32", "precision: 32",
         "11: $.cases[0].precision: found '32'; allowed: a precision such as fp32, or a list"),
        ("images/s", "tok/s", "3: $.unit: found 'tok/s'; allowed: a unit such as images/s; t"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_line_and_key_path(tmp_path, old, new, expected):
    assert GOOD.count(old) == 1
    [mistake, *_] = mistakes(tmp_path, GOOD.replace(old, new))
    assert mistake.startswith(expected)


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"unit: images/s\n": "", "warmup_steps: 20": "warmup_steps: some",
          "1n1g, 4n8g": "1n1g, 4n8", "options: [dali]": "options: [da li]"},
         ["", ".window.warmup_steps", ".cases[0].topologies[1]", ".cases[1].options[0]"]),
        ({"unit: images/s\n": "unit: images/s\nflops_per_token: 1e9\n"},
         [".cases[0]", ".cases[1]"]),
        ({"cases:\n": "launch: {command: [a, '{x}'], environment: {A: '{y}'}}\ncases:\n"},
         [".launch.command[1]", ".launch.environment.A"]),
    ],
)  # fmt: skip
def test_all_mistakes_of_a_file_are_told_at_once(tmp_path, changes, paths):
    text = GOOD
    for old, new in changes.items():
        text = text.replace(old, new)
    told = [mistake.split(": ")[1] for mistake in mistakes(tmp_path, text)]
    assert told == [f"${path}" for path in paths]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: $: the file is empty"),
        ("- 1\n- 2\n", "1: $: found a list; allowed: mapping"),
        ("framework: [paddle\nmodel: x\n", "2: $: not YAML: "),
        ("a: 1\n---\nb: 2\n", "2: $: not YAML: "),
        ("framework: !!python/object:os.system x\n", "1: $"),
        ("log:\n\tname: x\n", "2: $: not YAML: "),
        ("framework: \ud800\n", "1: $: is not UTF-8"),
    ],
)
def test_what_is_no_system_file_is_told(tmp_path, text, expected):
    told = mistakes(tmp_path, text)[0]
    assert told.startswith(expected)
    assert ("indent by spaces, not by tabs" in told) is ("\t" in text)


def test_a_system_declared_twice_names_both_files(tmp_path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD, encoding="utf-8")
    with pytest.raises(YamlError, match=r"b\.yaml:1: .*declared twice; the first is in .*a\.yaml"):
        load_systems([tmp_path / "a.yaml", tmp_path / "b.yaml"], BUILTIN_FORMATS)


LAUNCH = """\
launch:
  devices: cpu
  start_on: head
  variables:
    data: {meaning: the images, kind: folder}
    shards:
      meaning: parts of the images
      default: 8
  values:
    threads:
      - {when: {option: dali, precision: [fp16, fp32]}, value: 10}
      - {when: {world_size: [2, 4]}, value: "{shards}"}
      - {value: 8}
  command:
    - mpirun
    - --rate={batch_per_node/1000}
    - when: {nodes: 2+, without_option: dali, without_precision: fp16}
      arguments: [-H, "{host_slots}"]
    - "{extra_arguments}"
    - "{data}"
  environment:
    THREADS: "{threads}"
    FAST: [{when: {devices_per_node: 1}, value: 1}]
  working_directory: "{data}"
  time_limit_s: 100
  first_step_limit_s: 60
  step_limit_s: 6.5
  run_to_end: true
  retries: 2
  pause_s: 0
"""


LAYOUTS = """\
framework: megatron
model: llama3
unit: tokens/s
flops_per_token: 48.2e9
log: {name: gpt, format: dlperf}
window: {warmup_steps: 20, measured_steps: 100}
cases:
  - precision: bf16
    global_batch: 256
    sequence_length: 4096
    parallel: {tp: 2, pp: 4, cp: 1}
    options: [fp8_comm]
    topologies: [1n8g, 64n8g]
    reference: 1n8g
  - precision: bf16
    batch_per_replica: 2
    sequence_length: 8192
    parallel: {tp: 8}
    topologies: [2n8g]
    reference: none
    flops_per_sample: 5e14
"""


def test_a_case_may_say_its_global_batch_length_layout_and_reference(tmp_path):
    one, many, other = load(tmp_path, LAYOUTS).cases
    assert one.id == "megatron-llama3-bf16-gb256-s4096-tp2_pp4-fp8_comm-1n8g"
    assert many.id == "megatron-llama3-bf16-gb256-s4096-tp2_pp4-fp8_comm-64n8g"
    assert (many.replicas, many.batch_per_replica, many.global_batch) == (64, 4, 256)
    assert many.reference == one
    assert not one.is_scaled
    assert many.is_scaled
    assert many.ideal_speedup == 64
    assert many.flops_per_sample == 48.2e9 * 4096
    assert other.id == "megatron-llama3-bf16-b2-s8192-tp8-2n8g"
    assert other.reference is None
    assert other.flops_per_sample == 5e14


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("topologies: [1n8g, 64n8g]", "topologies: [1n8g, 1n4g]",
         ("13: $.cases[0].topologies[1]: the layout tp2_pp4 takes 8 devices for a replica, which "
         "does not divide the 4 there are")),
        ("parallel: {tp: 2, pp: 4, cp: 1}", "parallel: {ep: 3, pp: 4}",
         ("13: $.cases[0].topologies[0]: the layout pp4_ep3 spreads experts over 3 devices, which "
         "does not divide the 2 of a pipeline stage")),
        ("global_batch: 256", "global_batch: 96",
         "13: $.cases[0].topologies[1]: the global batch 96 does not divide by the 64 data-"),
        ("    parallel: {tp: 2, pp: 4, cp: 1}\n", "",
         "12: $.cases[0].topologies[1]: the global batch 256 does not divide by the 512 data-"),
        ("    reference: 1n8g\n", "",
         ("13: $.cases[0].topologies[0]: speedups cannot be taken over 1n1g: the layout tp2_pp4 "
         "takes 8 devices for a replica, which does not divide the 1 there are; name another "
         "reference topology, as in 'reference: 1n8g', or 'reference: none'")),
        ("reference: none", "reference: never", "20: $.cases[1].reference: found 'never'; allow"),
        ("global_batch: 256", "global_batch: 256\n    batch_per_replica: 4",
         ("8: $.cases[0]: a case has one of batch_per_device (batch_per_replica with 'parallel') "
         "and global_batch; found batch_per_replica and global_batch")),
        ("batch_per_replica: 2", "batch_per_device: 2",
         ("16: $.cases[1].batch_per_device: with 'parallel' a replica takes more than one device; "
         "write batch_per_replica, or all of it as global_batch")),
        ("    sequence_length: 8192\n", "",
         "15: $.cases[1]: throughput in tokens/s needs 'sequence_length' here"),
        ("flops_per_sample: 5e14", "flops_per_sample: 5e14\n    flops_per_token: 1e9",
         "15: $.cases[1]: flops_per_token and flops_per_sample say the same; give one"),
        ("[fp8_comm]", "[tp2]", "13: $.cases[0].topologies[0]: option 'tp2' would be read as"),
    ],
)  # fmt: skip
def test_work_that_cannot_be_is_told_by_line(tmp_path, old, new, expected):
    assert LAYOUTS.count(old) == 1
    assert mistakes(tmp_path, LAYOUTS.replace(old, new))[0].startswith(expected)


def test_lists_name_a_case_for_each_combination(tmp_path):
    text = LAYOUTS.replace("precision: bf16\n    global_batch: 256", (
        "precision: [bf16, fp8]\n    global_batch: [256, 512]"
    )).replace("parallel: {tp: 8}", "parallel: [{tp: 8}, {tp: 4, cp: 2}]")  # fmt: skip
    cases = load(tmp_path, text).cases
    first = "megatron-llama3-{}-gb{}-s4096-tp2_pp4-fp8_comm-{}"
    assert [case.id for case in cases] == [
        *(
            first.format(precision, batch, topology)
            for topology in ("1n8g", "64n8g")
            for precision in ("bf16", "fp8")
            for batch in (256, 512)
        ),
        "megatron-llama3-bf16-b2-s8192-tp8-2n8g",
        "megatron-llama3-bf16-b2-s8192-tp4_cp2-2n8g",
    ]
    assert cases[0].flops_per_sample == 48.2e9 * 4096


def test_a_mistake_that_several_combinations_share_is_told_once(tmp_path):
    text = LAYOUTS.replace("global_batch: 256", "global_batch: 257")
    told = mistakes(tmp_path, text.replace("precision: bf16", "precision: [bf16, fp8]"))
    assert len(told) == len({*told})


def test_a_launch_fills_in_and_chooses_by_length_and_layout(tmp_path):
    launch = """\
launch:
  command:
    - train
    - --length={sequence_length}
    - --layout={tp},{pp},{cp},{ep}
    - --batch={batch_per_replica}/{global_batch}
    - {when: {pp: 2+, sequence_length: [2048, 4096]}, arguments: ["--interleave={replicas}"]}
    - {when: {tp: 8}, arguments: [--wide]}
"""
    system = load(tmp_path, LAYOUTS + launch)
    _, many, other = system.cases
    assert system.launch.arguments(many)[4:] == ("--interleave={replicas}",)
    assert system.launch.arguments(other)[4:] == ("--wide",)


@pytest.mark.parametrize(
    ("text", "argument", "expected"),
    [
        (LAYOUTS, "{batch_per_device}", "megatron-llama3-bf16-gb256-s4096-tp2_pp4-fp8_comm-1n8g "),
        (LAYOUTS.replace("{tp: 8}", "{tp: 16}"), "{batch_per_node}",
         "megatron-llama3-bf16-b2-s8192-tp16-2n8g spreads a replica over several nodes; use {bat"),
        (GOOD, "{sequence_length}", "paddle-resnet50-fp32-b128-1n1g has no sequence_length"),
    ],
)  # fmt: skip
def test_what_a_case_has_no_value_of_is_told(tmp_path, text, argument, expected):
    mistake = mistakes(tmp_path, f"{text}launch: {{command: [train, '--a={argument}']}}\n")[0]
    assert f"$.launch.command[1]: uses {argument}, and {expected}" in mistake


def test_a_launch_is_read(tmp_path):
    system = load(tmp_path, GOOD.replace("cases:\n", f"{LAUNCH}cases:\n"))
    launch, (one, four, dali) = system.launch, system.cases
    assert (launch.devices, launch.start_on) == (Devices.CPU, StartOn.HEAD)
    assert launch.variables["data"].kind is VariableKind.FOLDER
    assert launch.variables["shards"].default == "8"
    assert launch.arguments(one) == ("mpirun", "--rate={batch_per_node/1000}", *LAST)
    assert launch.arguments(four)[2:] == ("-H", "{host_slots}", *LAST)
    assert launch.environment_of(one) == {"THREADS": "{threads}", "FAST": "1"}
    assert launch.environment_of(four) == {"THREADS": "{threads}"}
    assert [launch.values_of(case)["threads"] for case in system.cases] == ["8", "8", "10"]
    assert launch.arguments(dali)[2:] == LAST
    assert (launch.time_limit_s, launch.step_limit_s, launch.run_to_end) == (100.0, 6.5, True)


LAST = ("{extra_arguments}", "{data}")


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [
        ("kind: folder", "kind: foldr", "14: $.launch.variables.data.kind",
         "found text; allowed: file, folder, text; did you mean 'folder'?"),
        ("    data: {m", "    nodes: {meaning: x}\n    data: {m", "14: $.launch.variables.nodes",
         "has the name 'nodes', which has a meaning already"),
        ("    data: {m", "    A b: {meaning: x}\n    data: {m", "14: $.launch.variables.A b",
         "'A b' is not a name of lower-case letters"),
        ("    FAST:", "    A=B: 1\n    FAST:", "32: $.launch.environment.A=B",
         "'A=B' is not the name of an environment variable"),
        ("world_size:", "worldsize:", "21: $.launch.values.threads[1].when.worldsize",
         "unknown key 'worldsize'; allowed: precision, without_precision, option, "),
        ('"{shards}"', '"{shard}"', "21: $.launch.values.threads[1].value",
         "'{shard}' has the unknown placeholder {shard}; did you mean 'shards'?"),
        ("      - {value: 8}\n", "", "20: $.launch.values.threads",
         "has no choice for paddle-resnet50-fp32-b128-1n1g; a last one without 'when' is for all"),
        ("batch_per_node/1000", "batch_per_nod/1000", "25: $.launch.command[1]",
         "'--rate={batch_per_nod/1000}' has the unknown placeholder {batch_per_nod/1000}; did you"),
        ("batch_per_node/1000", "batch_per_node/0", "25: $.launch.command[1]",
         "'--rate={batch_per_node/0}' divides by zero"),
        ("[-H, ", '["{batch}", ', "27: $.launch.command[2].arguments[0]",
         "'{batch}' has the unknown placeholder {batch}"),
        ('"{extra_arguments}"', '"-{extra_arguments}"', "28: $.launch.command[3]",
         "'-{extra_arguments}' has {extra_arguments} inside"),
        ('- "{data}"', "- {data}", "29: $.launch.command[4].data",
         "unknown key 'data'; allowed: when, arguments; a text in braces stands in quotes, as in"),
        ('"{threads}"', '"{threds}"', "31: $.launch.environment.THREADS",
         "'{threds}' has the unknown placeholder {threds}; did you mean 'threads'?"),
        ('working_directory: "{data}"', 'working_directory: "{date}"',
         "33: $.launch.working_directory", "'{date}' has the unknown placeholder {date}; did you"),
        ("pause_s: 0", "pause_s: -1", "39: $.launch.pause_s", "found text; allowed: number ≥ 0"),
    ],
)  # fmt: skip
def test_a_mistake_of_a_launch_is_told_by_line_and_key_path(tmp_path, old, new, path, expected):
    text = GOOD.replace("cases:\n", f"{LAUNCH}cases:\n")
    assert text.count(old) == 1
    [mistake, *_] = mistakes(tmp_path, text.replace(old, new))
    assert mistake.startswith(f"{path}: {expected}")


@pytest.mark.parametrize("file", sorted(SYSTEMS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_copy_may_have_fewer_cases(tmp_path, file):
    """Conditions stay behind that are for cases left out."""
    head, entries = file.read_text(encoding="utf-8").split("\ncases:\n")
    for entry in entries.split("  - precision")[1:]:
        copy = tmp_path / file.name
        copy.write_text(f"{head}\ncases:\n  - precision{entry}", encoding="utf-8")
        assert load_systems([copy], BUILTIN_FORMATS)[file.stem].cases


def test_a_path_that_is_a_default_is_beside_the_file_that_says_it(tmp_path):
    said = "variables: {program: {meaning: x, kind: file, default: ../trainers/own.py}}"
    launch = f'launch:\n  {said}\n  command: ["{{program}}"]\n'
    spec = load(tmp_path, GOOD.replace("cases:\n", f"{launch}cases:\n")).launch
    assert spec.variables["program"].default == str(tmp_path.parent / "trainers" / "own.py")


FORMAT = GOOD.replace("format: paddle_resnet", "format:\n    {}")


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ("json: {step: step, second: time}", ".json.second", "is not a group of a record: step"),
        ("{json: {step: s}, csv: {step: s}}", "", "one of 'record', 'json' and"),
        ("{json: {step: s}, covers: moving_mean}", ".covers", "last_step, since_last"),
        ("{json: {step: s}, covers: last}", ".covers", "since_start"),
        ("{json: {step: s}, step: count}", "", "counted only without step"),
        ("{json: {}, step: {every: 0}}", ".step.every", "integer ≥ 1"),
        ("{record: x, step: all}", ".step", "count or mapping"),
        ("{record: 'step (?P<step>'}", "", "missing )"),
        ("{record: 'no groups'}", "", "group"),
        ("{record: '(?P<step>[0-9]*)'}", "", "empty"),
    ],
)
def test_mistakes_of_a_format(tmp_path, given, key, said):
    [first, *_] = mistakes(tmp_path, FORMAT.format(given))
    assert first.startswith(f"7: $.log.format{key}: "), first
    assert said in first


def test_the_words_of_a_format(tmp_path):
    by_key = "{json: {step: a.b, seconds: c}, where: {kind: train, n: 1}, covers: since_last}"
    found = load(tmp_path, FORMAT.format(by_key)).log_format
    assert isinstance(found.record, JsonKeys)
    assert found.name == "paddle-resnet50"
    assert found.record.keys == {"step": "a.b", "seconds": "c"}
    assert found.record.where == {"kind": "train", "n": "1"}
    assert (found.covers, found.timing) == (Covers.SINCE_LAST, Timing.SECONDS)
    for step, every in (("count", 1), ("{every: 10}", 10)):
        counted = load(tmp_path, FORMAT.format(f"{{record: done, step: {step}}}")).log_format
        assert counted.step_every == every
    in_samples = "{csv: {step: n, timestamp: t}, steps_in: samples, rate_scope: device}"
    assert load(tmp_path, FORMAT.format(in_samples)).log_format.steps_in is StepsIn.SAMPLES


def test_a_metric_cannot_name_a_step_that_has_another_number(tmp_path):
    text = FORMAT.format("{record: done, step: count}") + (
        "metrics:\n  loss: {record: 'step (?P<step>[0-9]+) loss (?P<value>[0-9.na]+)'}\n"
    )
    [mistake] = mistakes(tmp_path, text)
    assert "$.metrics.loss.record: the group 'step'" in mistake

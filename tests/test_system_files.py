"""System files: what they declare, and how their mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dlperf.logs.formats import BUILTIN_FORMATS
from pytest_dlperf.systems import System, load_systems
from pytest_dlperf.yamlfile import YamlError

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


def load(tmp_path: Path, text: str) -> System:
    file = tmp_path / "paddle-resnet50.yaml"
    file.write_text(text, encoding="utf-8")
    return load_systems([file], BUILTIN_FORMATS)["paddle-resnet50"]


def mistakes(tmp_path: Path, text: str) -> list[str]:
    """The mistakes of a file, without the part that names it."""
    with pytest.raises(YamlError) as caught:
        load(tmp_path, text)
    file = tmp_path / "paddle-resnet50.yaml"
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


def test_a_file_declares_a_system_and_its_cases(tmp_path: Path) -> None:
    system = load(tmp_path, GOOD)

    assert system.id == "paddle-resnet50"
    assert [case.id for case in system.cases] == [
        "paddle-resnet50-fp32-b128-1n1g",
        "paddle-resnet50-fp32-b128-4n8g",
        "paddle-resnet50-fp16-b196-dali-1n1g",
    ]
    assert (system.repeats, system.tolerance_percent) == (5, 5.0)
    assert system.launch is None


def test_the_shipped_files_are_sound() -> None:
    systems = load_systems(sorted(SYSTEMS.glob("*.yaml")), BUILTIN_FORMATS)
    assert "pytorch-resnet18" in systems
    assert len(systems) == 6


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("unit: images/s\n", "", "1: $: the key 'unit' is missing"),
        (
            "unit: images/s\n",
            "unit: images/s\nrepeat: 3\n",
            (
                "4: $.repeat: unknown key 'repeat'; allowed: framework, model, unit, log, window, "
                "cases, repeats, tolerance_percent, marks, launch; did you mean 'repeats'?"
            ),
        ),
        (
            "  format: paddle_resnet\n",
            "  format: paddle_resent\n",
            "6: $.log.format: found 'paddle_resent', text; allowed: ",
        ),
        (
            "[1n1g, 4n8g]",
            "[1n1g, 4x8]",
            (
                "13: $.cases[0].topologies[1]: '4x8' is no topology; write nodes and devices per "
                "node as in '4n8g'"
            ),
        ),
        (
            "batch_per_device: 128",
            "batch_per_device: many",
            (
                "12: $.cases[0].batch_per_device: found 'many', text; allowed: a whole number of "
                "at least 1"
            ),
        ),
        (
            "batch_per_device: 128",
            "batch_per_device: 0",
            (
                "12: $.cases[0].batch_per_device: found '0', a number; allowed: a whole number of "
                "at least 1"
            ),
        ),
        (
            "model: resnet50",
            "model: ResNet-50",
            (
                "2: $.model: model 'ResNet-50' is out of form; allowed are lower-case "
                "letters, digits and underscores, a letter first (a hyphen stands only between the "
                "parts of an id)"
            ),
        ),
        (
            "[1n1g, 4n8g]",
            "[1n1g, 1n1g]",
            (
                "13: $.cases[0].topologies[1]: paddle-resnet50-fp32-b128-1n1g is named twice; "
                "first on line 13"
            ),
        ),
        (
            "unit: images/s\n",
            "unit: images/s\nmodel: resnet50\n",
            "4: $.model: the key stands twice; the first is on line 2",
        ),
        (
            "unit: images/s\n",
            "unit: images/s\ntolerance_percent: -5\n",
            (
                "4: $.tolerance_percent: found '-5', a number; allowed: a finite number above 0 "
                "and below 100, in percent"
            ),
        ),
        (
            "precision: fp32",
            "precision: 32",
            (
                "11: $.cases[0].precision: found '32', a number; allowed: a precision such as fp32 "
                "(quote it to make it text)"
            ),
        ),
        ("[1n1g, 4n8g]", "[]", "13: $.cases[0].topologies: found an empty list; allowed: "),
        ("[1n1g, 4n8g]", "1n1g", "13: $.cases[0].topologies: found '1n1g', text; allowed: a list"),
    ],
)
def test_a_mistake_is_told_by_line_and_key_path(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert GOOD.count(old) == 1
    [mistake] = mistakes(tmp_path, GOOD.replace(old, new))
    assert mistake.startswith(expected)


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    text = (
        GOOD.replace("unit: images/s\n", "")
        .replace("warmup_steps: 20", "warmup_steps: some")
        .replace("1n1g, 4n8g", "1n1g, 4n8")
        .replace("options: [dali]", "options: [da li]")
    )
    assert [mistake.split(": ")[1] for mistake in mistakes(tmp_path, text)] == [
        "$",
        "$.window.warmup_steps",
        "$.cases[0].topologies[1]",
        "$.cases[1].options[0]",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1: $: the file is empty"),
        ("- 1\n- 2\n", "1: $: found a list; allowed: a mapping with framework"),
        ("framework: [paddle\nmodel: x\n", "2: $: not YAML: "),
        ("framework: \tpaddle: x\n", "1: $: not YAML: "),
        ("a: 1\n---\nb: 2\n", "2: $: not YAML: "),
        ("framework: !!python/object:os.system x\n", "1: $"),
    ],
)
def test_what_is_no_system_file_is_told(tmp_path: Path, text: str, expected: str) -> None:
    assert mistakes(tmp_path, text)[0].startswith(expected)


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"framework: \xff\xfe\n")
    with pytest.raises(YamlError, match="is not UTF-8"):
        load_systems([file], BUILTIN_FORMATS)


def test_a_system_declared_twice_names_both_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD, encoding="utf-8")
    with pytest.raises(YamlError, match=r"b\.yaml:1: .*declared twice; the first is in .*a\.yaml"):
        load_systems([tmp_path / "a.yaml", tmp_path / "b.yaml"], BUILTIN_FORMATS)


def test_a_launch_with_an_unknown_field_is_told(tmp_path: Path) -> None:
    launch = "launch:\n  command: [train, '--batch={batch}']\n"
    [mistake] = mistakes(tmp_path, GOOD.replace("cases:\n", f"{launch}cases:\n"))
    assert mistake.startswith("11: $.launch: ")
    assert "{batch}" in mistake


def test_a_log_format_can_be_declared_without_python(tmp_path: Path) -> None:
    record = r"'iteration (?P<step>\d+) took (?P<seconds>[\d.]+) s'"
    own = GOOD.replace("format: paddle_resnet", f"format: {{record: {record}}}")
    assert load(tmp_path, own).log_format.name == "paddle-resnet50"


@pytest.mark.parametrize("record", ["'step (?P<step>'", "'no groups'", "'(?P<step>[0-9]*)'"])
def test_a_log_format_that_cannot_work_is_told(tmp_path: Path, record: str) -> None:
    text = GOOD.replace("format: paddle_resnet", f"format: {{record: {record}}}")
    assert mistakes(tmp_path, text)[0].startswith("6: $.log.format: ")

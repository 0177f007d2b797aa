"""Hand-written files: what is refused, by line and key path, and never ends in a traceback."""

import os
import random
import re

import pytest
from hand_written import CLUSTER_TEXT, DOCUMENTS, NAMES, SYSTEM_TEXT, mistakes, read

from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.files.yamlfile import MAX_BYTES, YamlError

HIDDEN_WORD = "hunter2"


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_file_with_most_keys_is_read(kind, tmp_path):
    assert mistakes(kind, DOCUMENTS[kind], tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "old", "new", "expected"),
    [
        ("system", "repeats: 5", "repeats: 1000000000", "$.repeats: found '1000000000'; allowed"),
        ("system", "tolerance_percent: 2.5", "tolerance_percent: .nan", "$.tolerance_percent: fou"),
        ("system", "measured_steps: 100", "measured_steps: 1e12", "$.window.measured_steps: found"),
        ("system", "[1n1g, 2n1g]", "[1n1000000000g]", "$.cases[0].topologies[0]: found '1n1000"),
        ("system", "time_limit_s: 60", "time_limit_s: 1e300", "$.launch.time_limit_s: found text"),
        ("system", "time_limit_s: 60", "retries: 99999999999", "$.launch.retries: found text; "),
        ("system", "time_limit_s: 60", "pause_s: .inf", "$.launch.pause_s: found text; "),
        ("system", "run_to_end: false", "run_to_end: maybe", "$.launch.run_to_end: found text"),
        ("system", "environment: {A: 1,", "environment: {A B: 1,", "$.launch.environment.A B: "),
        ("system", "  devices: gpu", "  environments: {A: 1}",
         "$.launch.environments: unknown key 'environments'; allowed: "),
        ("system", "command: [python,", 'command: ["py\\0thon",', "$.launch.command[0]: holds a "),
        ("system", "option: [dali, xla]", "option: [dalli]",
         "$.launch.values.threads[0].when: no case has the option 'dalli'; did you mean 'dali'?"),
        ("system", "precision: fp16}", "axes: {size: 8}}",
         "$.launch.environment.B[0].when: no case has the axis 'size'; there are: none"),
        ("system", "marks: [nightly]", "marks: [xfail]", "$.marks[0]: found 'xfail'; allo"),
        ("system", "model: resnet50", "model:", "$.model: found nothing; allowed: a name of"),
        ("system", "model: resnet50", "model: !!binary aGk=", "$.model: found the tag tag:y"),
        ("cluster", "devices_per_node: 8\npython", "devices_per_node: 1000000000\npython",
         "$.devices_per_node: found '1000000000'; allowed: integer ≥ 1 and ≤ 10,000"),
        ("cluster", "control:", "peak_tflops: {bf16: 1e308}\ncontrol:", "$.peak_tflops.bf16: f"),
        ("cluster", "env: {NCCL_DEBUG: INFO", "env: {A B: INFO", "$.vars.paddle-resnet50.env.A"),
        ("cluster", "estimator: steady", "estimator: stedy",
         "$.estimator: found 'stedy'; allowed: published, steady; did you mean 'steady'?"),
        ("baselines", "        accepted: 352.72 ", "        accepted: 35",
         "$.entries.fp32-b128.1n1g.throughput.accepted: the number 35.0 does not follow"),
        ("baselines", "tolerance_percent: 3", "tolerance_percent: 100", "$.entries.fp32-b128.1n8g"),
        ("baselines", '"2026-11-01T03:00:00+00:00"', '"2026-02-31T03:00:00+00:00"',
         "$.entries.fp32-b128.1n8g.throughput.sessions[0]: '2026-02-31T03:00:00+00:00' is not "),
        ("baselines", "1: 352.0,", "0: 352.0,", "$.entries.fp32-b128.1n1g.throughput.runs.0: "),
    ],
)  # fmt: skip
def test_what_no_launch_or_number_could_be_is_refused_with_its_line(
    kind, old, new, expected, tmp_path
):
    assert DOCUMENTS[kind].count(old) >= 1
    text = DOCUMENTS[kind].replace(old, new, 1)
    found, *_ = mistakes(kind, text, tmp_path)
    assert found.message.startswith(expected)
    line = int(found.place.removeprefix(f"{tmp_path / NAMES[kind]}:"))
    assert abs(line - 1 - text[: text.index(new.strip())].count("\n")) <= 1


def test_scalars_stay_as_written_and_anchors_and_merges_are_read(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cluster.yaml").write_text(
        "software: &versions {cuda: 10.20, flag: yes, lr: 1e-3}\n"
        "hardware: {<<: *versions, cuda: 11.0}\n"
        "peak_tflops: {bf16: 1e3}\n",
        encoding="utf-8",
    )
    cluster = find_cluster(tmp_path, "mine")
    assert cluster.software == {"cuda": "10.20", "flag": "yes", "lr": "1e-3"}
    assert cluster.hardware == {"cuda": "11.0", "flag": "yes", "lr": "1e-3"}
    assert cluster.peak_tflops == {"bf16": 1000.0}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_only_a_regular_file_of_a_sane_size_is_read(kind, tmp_path):
    file = tmp_path / NAMES[kind]
    os.mkfifo(file)
    with pytest.raises(YamlError, match="it is not a regular file"):
        read(kind, file)
    file.unlink()
    file.symlink_to("/dev/zero")
    with pytest.raises(YamlError, match="it is not a regular file"):
        read(kind, file)
    file.unlink()
    with file.open("wb") as opened:
        opened.truncate(MAX_BYTES + 1)
    with pytest.raises(YamlError, match="is larger than"):
        read(kind, file)


# ----------------------------------------------------------------------------- mutated files

WORDS = [
    '"', "'", "{", "[", "]", "}", ":", "\t", "- ", "&a ", "*a", "<<: *a", "<<: [*a, *a]", "!!int ",
    "!!python/object:os.system ", "|", ">", "#", "~", "null", "\0", "1e999", "-1", ".nan", "yes",
    "2026-11-21", "? ", "---\n", "&a [*a]", "é\u2028", "[[[[", '""', "{a: b}", "[1, 2]", "0x10",
]  # fmt: skip
WHOLE = [
    "a" * 1_000_000,
    "x: " + "y" * 1_000_000,
    "- " * 3_000,
    "[" * 100_000,
    "{a: " * 10_000,
    "a: &a [*a]",
    "&a {b: *a}",
    "a: &a\n  <<: *a",
    "a0: &a0 [x]\n" + "\n".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]" for n in range(1, 12)),
    "",
]
HIDDEN = {
    "baselines": DOCUMENTS["baselines"],
    "cluster": CLUSTER_TEXT.replace("DEBUG: INFO", f"DEBUG: {HIDDEN_WORD}").replace(
        "/conda", f"/{HIDDEN_WORD}"
    ),
    "system": SYSTEM_TEXT.replace("{A: 1,", f"{{A: {HIDDEN_WORD},").replace(
        "--qos", f"--{HIDDEN_WORD}"
    ),
}


def mutated(text, chance):
    """A text with keys swapped, types changed, quotes left open, duplicates and tabs."""
    for _ in range(chance.randint(1, 3)):
        lines = text.split("\n")
        one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        column = chance.randrange(len(lines[one]) + 1)
        match chance.randrange(7):
            case 0:
                lines[one], lines[other] = lines[other], lines[one]
            case 1:
                lines.insert(one, lines[other])
            case 2:
                lines[one] = re.sub(r": .*", lambda _: ": " + chance.choice(WORDS), lines[one])
            case 3:
                cut = lines[one]
                lines[one] = cut[:column] + chance.choice(WORDS) + cut[column:]
            case 4:
                del lines[one]
            case 5:
                lines[one] = chance.choice(["\t", " ", "    "]) + lines[one]
            case _:
                lines[one:] = [lines[one][:column]]
        text = "\n".join(lines)
    return text


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [150, pytest.param(1_000, marks=[pytest.mark.ci, pytest.mark.nightly])]
)
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_mutated_files_end_in_messages_without_what_was_set(kind, count, tmp_path):
    chance = random.Random(kind)  # noqa: S311 - the same files each time
    texts = [*WHOLE, *(mutated(HIDDEN[kind], chance) for _ in range(count))]
    refused = 0
    for text in texts:
        found = mistakes(kind, text, tmp_path)
        refused += bool(found)
        for problem in found:
            assert re.fullmatch(re.escape(f"{tmp_path / NAMES[kind]}:") + "[0-9]+", problem.place)
            assert HIDDEN_WORD not in problem.message
    assert refused > count / 2

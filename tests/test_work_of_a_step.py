"""What a step does: batch, sequence length and layout, from a system file to a throughput."""

import shutil
from pathlib import Path

import log_makers
import pytest
import yaml
from hand_written import mistakes
from judged_logs import judged

from pytest_dlperf.model.measurement import RunStatus

pytestmark = [pytest.mark.end_to_end, pytest.mark.in_process]

TORCHTITAN = Path(__file__).parent / "data" / "logs" / "torchtitan_1n2g_tp2.log"
SYSTEM = r"""
framework: torchtitan
model: debugmodel
unit: tokens/s
log:
  name: titan
  format:
    record: '\[titan\] (?P<timestamp>[0-9-]+ [0-9:,]+) .*step: +(?P<step>[0-9]+) '
    facts:
      batch_per_replica: 'local batch size ([0-9]+)'
      global_batch: 'global batch size ([0-9]+)'
      sequence_length: 'sequence length ([0-9]+)'
      tp: 'parallelism: .*\btp=([0-9]+)'
      pp: 'parallelism: .*\bpp=([0-9]+)'
window: {warmup_steps: 6, measured_steps: 14}
cases:
  - {precision: fp32, batch_per_replica: 2, sequence_length: 128, parallel: {tp: 2},
     topologies: [1n2g], reference: none}
"""
LOG = "logs/torchtitan-debugmodel/b2-s128-tp2/1n2g/titan_b2_fp32_1.log"


def run_of(folder, system=SYSTEM, *logs):
    """The only run of the file's only case, read from the real log or these."""
    file = folder / "own.yaml"
    file.write_text(system, encoding="utf-8")
    return judged(file, *(logs or [TORCHTITAN]))


@pytest.mark.parametrize("batch", ["batch_per_replica: 2,", "global_batch: 2,"])
def test_a_tensor_parallel_run_is_as_fast_as_it_is(tmp_path, batch):
    run = run_of(tmp_path, SYSTEM.replace("batch_per_replica: 2,", batch))
    # Two sequences a step; with samples times devices it would be 349.
    assert run.metrics["throughput"] == pytest.approx(174.3, abs=0.1), run.reason


def test_a_log_outside_of_the_folder_of_its_work_is_told_where_it_belongs(suite):
    suite.system_file(SYSTEM)
    place = suite.path / "logs" / "1n2g" / "titan_b2_fp32_1.log"
    place.parent.mkdir(parents=True)
    shutil.copy(TORCHTITAN, place)
    result, results = suite.judge(
        "--dlperf-logs", "torchtitan-debugmodel=logs", "-k", "torchtitan", "-rs", cluster="local"
    )
    [ignored] = results["ignored_logs"]
    assert ignored["reason"].endswith("; such logs lie in folders b2-s128-tp2")
    result.stdout.fnmatch_lines(["*where b2-s128-tp2/1n2g/titan_b2_fp32_<run>.log lie*"])


@pytest.mark.parametrize(
    ("declared", "instead", "said"),
    [
        ("parallel: {tp: 2}", "parallel: {pp: 2}",
         "the log says pp 1; the case torchtitan-debugmodel-fp32-b2-s128-pp2-1n2g has 2 (line 2)"),
        ("parallel: {tp: 2}", "parallel: {}",
         "the log says tp 2; the case torchtitan-debugmodel-fp32-b2-s128-1n2g has 1 (line 2)"),
        ("sequence_length: 128", "sequence_length: 256",
         ("the log says sequence_length 128; the case torchtitan-debugmodel-fp32-b2-s256-tp2-1n2g "
         "has 256 (line 3)")),
        ("batch_per_replica: 2", "batch_per_replica: 4",
         ("the log says batch_per_replica 2; the case torchtitan-debugmodel-fp32-b4-s128-tp2-1n2g "
         "has 4 (line 3)")),
    ],
)  # fmt: skip
def test_a_log_of_other_work_is_refused_and_not_measured(tmp_path, declared, instead, said):
    run = run_of(tmp_path, SYSTEM.replace(f"{declared},", f"{instead},"))
    assert (run.status, run.metrics) == (RunStatus.INVALID, {})
    assert (run.reason or "").startswith(said)


MEGATRON = r"""
framework: megatron
model: tiny
unit: tokens/s
log:
  name: gpt
  format:
    record: 'iteration +(?P<step>[0-9]+)/.*per iteration \(ms\): (?P<milliseconds>[0-9.]+) '
    facts: {global_batch: 'global batch size: +([0-9]+) '}
window: {warmup_steps: 2, measured_steps: 4}
cases:
  - {precision: bf16, global_batch: 8, sequence_length: 100, parallel: {tp: 2, pp: 2},
     topologies: [2n4g], reference: 1n4g}
"""


@pytest.mark.parametrize("batch", [8, 16])
def test_what_every_step_says_of_its_run_is_held_to_the_case(tmp_path, batch):
    """Megatron prints its global batch in each line, behind the time."""
    line = (
        " iteration {:8}/ 100 | elapsed time per iteration (ms): 500.0 | learning rate: 1 | "
        f"global batch size: {batch:5} | lm loss: 1.0 |\n"
    )
    run = run_of(tmp_path, MEGATRON, "".join(line.format(step) for step in range(1, 9)))
    if batch == 8:
        assert run.metrics["throughput"] == 8 * 100 / 0.5
    else:
        assert run.status is RunStatus.INVALID
        assert run.reason.startswith(
            "the log says global_batch 16; the case megatron-tiny-bf16-gb8-s100-tp2_pp2-2n4g has 8 "
            "(line 1)"
        )


def test_a_fact_is_one_group_under_a_known_name(tmp_path):
    for old, new, said in (
        ("'local batch size ([0-9]+)'", "'local batch size [0-9]+'",
         "needs one group, around the value of batch_per_replica, and has 0"),
        ("      tp: ", "      tq: ", "'tq' is not a fact of a case; those are precision, nodes, "),
        ("'sequence length ([0-9]+)'", "'sequence length ([0-9]+'", "is not a regular expression"),
    ):  # fmt: skip
        assert SYSTEM.count(old) == 1
        told = str(mistakes("system", SYSTEM.replace(old, new), tmp_path)[0])
        assert said in told
        assert "$.log.format" in told


def test_logs_of_two_lengths_lie_apart_and_are_found_again(suite):
    suite.system_file(
        """
framework: own
model: net
unit: tokens/s
log: {name: net, format: dlperf}
window: {warmup_steps: 2, measured_steps: 4}
cases:
  - {precision: fp32, batch_per_device: 4, sequence_length: 64, topologies: [1n1g]}
  - {precision: fp32, batch_per_device: 4, sequence_length: 128, topologies: [1n1g]}
  - {precision: fp32, batch_per_device: 4, sequence_length: 128, options: [xla], topologies: [1n1g]}
"""
    )
    text = log_makers.dlperf_header(log_makers.case(batch=4)) + log_makers.dlperf([[0.5] * 8])
    for folder in ("deep/below/b4-s64/1n1g", "b4-s128/1n1g", "b4-s128/xla/1n1g", "b8-s128/1n1g"):
        log = suite.path / "logs" / folder / "net_b4_fp32_1.log"
        log.parent.mkdir(parents=True)
        log.write_text(text, encoding="utf-8")

    _, results = suite.judge(
        "--dlperf-logs", f"own-net={suite.path / 'logs'}", "-k", "own", cluster="local"
    )

    assert {
        case["id"]: case["measurement"]["runs"][0]["metrics"]["throughput"]
        for case in results["cases"]
    } == {
        "own-net-fp32-b4-s64-1n1g": pytest.approx(4 * 64 / 0.5),
        "own-net-fp32-b4-s128-1n1g": pytest.approx(4 * 128 / 0.5),
        "own-net-fp32-b4-s128-xla-1n1g": pytest.approx(4 * 128 / 0.5),
    }
    [ignored] = results["ignored_logs"]
    assert "b8-s128" in ignored["log"]
    assert ignored["reason"] == "it lies in a folder of b8-s128"


TRAINER = """\
import sys
world_size, layout, batch, length = sys.argv[1:]
step_s = 4.0 / float(world_size)
print(f"layout {layout} batch {batch} length {length}")
for step in range(1, 9):
    print(f"step {step} took {step_s} s", flush=True)
"""
SCALED = r"""
framework: own
model: net
unit: tokens/s
log:
  name: net
  format:
    record: '^step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'
    facts: {{tp: 'layout ([0-9]+)', global_batch: 'batch ([0-9]+)'}}
window: {{warmup_steps: 2, measured_steps: 4}}
repeats: 1
launch:
  devices: cpu
  command: ["{{python}}", "{trainer}", "{{world_size}}", "{{tp}}", "{{global_batch}}",
            "{{sequence_length}}"]
cases:
  - {{precision: fp32, global_batch: 8, sequence_length: 16, parallel: {{tp: 2}}, options: [xla],
     topologies: [1n4g], reference: 1n2g}}
  - {{precision: fp32, batch_per_replica: 4, sequence_length: 16, parallel: {{tp: 2}},
     topologies: [1n2g], reference: none}}
"""


def test_only_the_reference_topology_that_a_case_names_is_run_beside_it(suite):
    trainer = suite.path / "trainer.py"
    trainer.write_text(TRAINER, encoding="utf-8")
    suite.system_file(SCALED.format(trainer=trainer))
    night = suite.path / "night"

    result, results = suite.judge(
        "-k", "own", "--dlperf-run-dir", night, cluster="local"
    )  # fmt: skip

    strong = "own-net-fp32-gb8-s16-tp2-xla-1n4g"
    weak = "own-net-fp32-b4-s16-tp2-1n2g"
    failed = {line.partition(" - ")[0] for line in result.outlines if line.startswith("FAILED ")}
    assert failed == {
        f"FAILED (no_baseline) bench_tests/systems/own.yaml::test_speedup[{strong}]",
        f"FAILED (no_baseline) bench_tests/systems/own.yaml::test_throughput[{strong}]",
        f"FAILED (no_baseline) bench_tests/systems/own.yaml::test_throughput[{weak}]",
    }
    logs = {str(log.relative_to(night)) for log in night.rglob("*.log")}
    assert logs == {
        "own-net/gb8-s16-tp2/xla/1n4g/net_gb8_fp32_1.log",
        "own-net/gb8-s16-tp2/xla/1n2g/net_gb8_fp32_1.log",
        "own-net/b4-s16-tp2/1n2g/net_b4_fp32_1.log",
    }
    found = {case["id"]: case for case in results["cases"]}
    assert found[strong]["case"]["reference_topology"] == {"nodes": 1, "devices_per_node": 2}
    assert found[strong]["metrics"]["throughput"]["median"] == 8 * 16 / 1.0
    assert found[strong]["metrics"]["speedup"]["median"] == 2.0
    assert found[weak]["metrics"]["throughput"]["median"] == 4 * 16 / 2.0
    assert found[weak]["metrics"].get("speedup", {"median": None})["median"] is None

    again, results = suite.judge(
        "-k", "own", "--dlperf-logs", f"own-net={night}",
        "-m", "dlperf(parallel='tp2', global_batch=8, sequence_length=16)", cluster="local",
    )  # fmt: skip
    again.assert_outcomes(failed=2)
    [case] = results["cases"]
    assert case["id"] == strong
    assert case["metrics"]["speedup"]["median"] == 2.0


@pytest.mark.ci
@pytest.mark.slow
def test_a_loss_is_placed_and_scaling_is_told_from_the_reference_topology(suite):
    trainer = suite.path / "trainer.py"
    trainer.write_text(TRAINER, encoding="utf-8")
    suite.system_file(SCALED.format(trainer=trainer).replace("[1n4g]", "[1n2g, 1n4g, 1n8g]"))
    page = suite.path / "page.md"
    select = ("-k", "own and xla", "--dlperf-markdown", page)

    suite.judge(*select, "--dlperf-create-baselines", cluster="local")
    told = page.read_text(encoding="utf-8")
    assert "`own-net` `fp32-gb8-s16-tp2-xla` over 1n2g, strong scaling" in told
    speedups = [line for line in told.splitlines() if line.startswith("| speedup")]
    assert len(speedups) == 2
    assert all(" 100.0 % |" in line for line in speedups), "the scaling efficiency"

    slower = TRAINER.replace("4.0 /", "(4.0 if world_size == '2' else 4.8) /")
    trainer.write_text(slower, encoding="utf-8")
    suite.judge(*select, cluster="local")
    told = page.read_text(encoding="utf-8")
    assert (
        "the loss of throughput comes from inside the node (from 4 devices on, lost 16.7 %)" in told
    )


@pytest.mark.ci
@pytest.mark.slow
def test_a_speedup_is_never_held_against_one_over_another_topology(suite):
    trainer = suite.path / "trainer.py"
    trainer.write_text(TRAINER, encoding="utf-8")
    system = SCALED.format(trainer=trainer).replace("[1n4g]", "[1n8g]")
    suite.system_file(system)
    speedup = ("-k", "test_speedup and own")
    every = ("-k", "own and xla")

    def speedup_of(*arguments):
        _, results = suite.judge(*arguments, cluster="local")
        [case] = results["cases"]
        return case["metrics"]["speedup"]

    speedup_of(*every, "--dlperf-create-baselines")
    file = suite.path / "baselines" / "local" / "own-net.yaml"
    [entry] = yaml.safe_load(file.read_text("utf-8"))["entries"].values()
    assert entry["1n8g"]["speedup"] == {"accepted": 4.0, "over": 64.0, "reference": "1n2g"}
    assert speedup_of(*speedup)["verdict"] == "pass"

    suite.system_file(system.replace("reference: 1n2g", "reference: 1n4g"))
    changed = speedup_of(*speedup)
    assert (changed["median"], changed["verdict"]) == (2.0, "no_baseline")
    assert "has the speedup over 1n2g, measured was that over 1n4g" in changed["reason"]

    speedup_of(
        *every, "--dlperf-update-baselines", "--dlperf-reason", "a node is the reference now"
    )
    assert "reference: 1n4g" in file.read_text("utf-8")
    assert speedup_of(*speedup)["verdict"] == "pass"

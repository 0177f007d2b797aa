"""What the logs of a declared format say of their runs."""

import log_makers as make
import pytest

from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS

pytestmark = pytest.mark.in_process

SYSTEM = r"""
framework: own
model: net
unit: images/s
log:
  name: net
  format:
    record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'
    facts:
      precision: {record: '^amp=(\w+)', values: {True: [amp, fp16], False: fp32}}
      global_batch: 'a batch of ([0-9,]+) '
    options:
      dali: '^loader=dali: (\w+)'
      compiled: {record: '^mode=(\w+)', values: {eager: false, graph: true}}
window: {warmup_steps: 2, measured_steps: 4}
cases:
  - {precision: fp32, batch_per_device: 1024, topologies: [1n2g]}
  - {precision: amp, batch_per_device: 1024, options: [dali], topologies: [1n2g]}
"""
STEPS = "".join(f"step {step} took 0.5 s\n" for step in range(1, 8))
FULL, MIXED = "own-net-fp32-b1024-1n2g", "own-net-amp-b1024-dali-1n2g"


def judged(tmp_path, case, log):
    """The status of a run by its log, and what the log is refused for."""
    file = tmp_path / "own.yaml"
    file.write_text(SYSTEM, encoding="utf-8")
    system = load_systems([file], BUILTIN_FORMATS)["own-net"]
    of = next(each for each in system.cases if each.id == case)
    run = make.measured(tmp_path, log, system.log_format, of=of, window=system.window)
    return run.status.value, run.reason


@pytest.mark.parametrize(
    ("case", "header", "said"),
    [
        (FULL, "amp=False\nloader=dali: no\na batch of 2,048 images\n", None),
        (FULL, "amp=True\n", "precision True; the case {case} has fp32"),
        (FULL, "amp=None\n", "precision None; the case {case} has fp32"),
        (FULL, "\x1b[31mamp=\x1b[0mTrue\n", "precision True; the case {case} has fp32"),
        (FULL, "loader=dali: True\n", "dali True; the case {case} has no option dali"),
        (FULL, "a batch of 1,024 images\n", "global_batch 1,024; the case {case} has 2048"),
        (MIXED, "amp=True\nloader=dali: 1\n", None),
        (MIXED, "amp=False\n", "precision False; the case {case} has amp"),
        (MIXED, "loader=dali: off\n", "dali off; the case {case} has the option dali"),
        # No case of the system has the option compiled.
        (MIXED, "mode=graph\n", None),
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_facts_with_values_and_options(tmp_path, case, header, said, behind):
    log = STEPS + header if behind else header + STEPS
    status, reason = judged(tmp_path, case, log)
    if said is None:
        assert (status, reason) == ("ok", None)
    else:
        assert status == "invalid"
        assert reason.startswith(f"the log says {said.format(case=case)} (line ")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("values: {eager: false, graph: true}", "values: {eager: maybe}", "allowed: true or false"),
        ("{record: '^mode=(\\w+)', ", "{", "the key 'record' is missing"),
        (", values: {eager: false, graph: true}", "", "the key 'values' is missing"),
        ("'^loader=dali: (\\w+)'", "'^loader=dali: \\w+'", "one group, around the value of dali"),
        ("compiled: {", "Compiled: {", "is not a name of lower-case letters, digits"),
        ("'^loader=dali: (\\w+)'", "'^(?:x+)+=dali: (\\w+)'", "repeats a repetition"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, said):
    assert SYSTEM.count(old) == 1
    file = tmp_path / "own.yaml"
    file.write_text(SYSTEM.replace(old, new), encoding="utf-8")
    with pytest.raises(YamlError) as caught:
        load_systems([file], BUILTIN_FORMATS)
    assert said in str(caught.value)
    assert "$.log.format" in str(caught.value)


@pytest.mark.end_to_end
def test_a_shipped_trainer_with_another_loader(suite):
    header = "".join(
        f"2020-09-10 08:27:37,894-INFO:  {name} : {value}\n"
        for name, value in (("batch_size", 224), ("use_fp16", 1), ("use_dali", 1))
    )
    file = suite.path / "it.txt"
    file.write_text(header + make.paddle_resnet([0.5] * 130), encoding="utf-8")
    case = "paddle-resnet50-fp16-b224-1n1g"
    _, results = suite.judge("--dlperf-logs", f"{case}={file}", "-k", case)
    [found] = results["cases"]
    [run] = found["measurement"]["runs"]
    assert run["status"] == "invalid"
    assert f"the log says use_dali 1; the case {case} has no option dali" in run["reason"]

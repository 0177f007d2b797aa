"""Wall time that a run saves when it is ended as soon as its window is complete.

    python benchmarks/ending_early.py [--repeats 3] [--step-s 0.05] [--epoch-steps 300]

The trainer prints a step of so many seconds after the other until its epoch is over, as trainers
without an option for fewer steps do; 120 steps are needed. Two systems that differ in `run_to_end`
alone are run in turn by whole pytest sessions of several runs. Printed is also what a run takes
beyond the steps that are needed: its start, the time until the last of them is noticed, its end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from timing import run

WARMUP_STEPS, MEASURED_STEPS = 20, 100

TRAINER = """\
import sys, time
steps, step_s = int(sys.argv[1]), float(sys.argv[2])
begin = time.monotonic()
for step in range(1, steps + 1):
    time.sleep(max(0, begin + step * step_s - time.monotonic()))
    print(f"step {step} took {step_s} s", flush=True)
"""
SYSTEM = """\
framework: endless
model: {name}
unit: samples/s
log: {{name: endless, format: {{record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'}}}}
window: {{warmup_steps: {warmup_steps}, measured_steps: {measured_steps}}}
repeats: {repeats}
launch:
  devices: cpu
  command: ["{{python}}", "{{system_directory}}/train.py", "{epoch_steps}", "{step_s}"]
  run_to_end: {run_to_end}
cases: [{{precision: fp32, batch_per_device: 1, topologies: [{topology}]}}]
"""
TEST = """\
def test_throughput(dlperf_case, dlperf_measure):
    assert dlperf_measure(dlperf_case).median
"""
KINDS = {"until_its_end": "true", "until_complete": "false"}


def write_project(folder: Path, options: argparse.Namespace) -> None:
    """Write both systems and the test."""
    systems = folder / "bench_tests" / "systems"
    systems.mkdir(parents=True)
    (systems / "train.py").write_text(TRAINER, encoding="utf-8")
    for name, run_to_end in KINDS.items():
        text = SYSTEM.format(
            name=name,
            run_to_end=run_to_end,
            warmup_steps=WARMUP_STEPS,
            measured_steps=MEASURED_STEPS,
            **vars(options),
        )
        (systems / f"{name}.yaml").write_text(text, encoding="utf-8")
    (folder / "test_it.py").write_text(TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind")
    parser.add_argument("--step-s", type=float, default=0.05, help="seconds of a step")
    parser.add_argument("--epoch-steps", type=int, default=300, help="steps of an epoch")
    parser.add_argument("--topology", default="2n1g", help="nodes and processes, as in 2n1g")
    options = parser.parse_args()
    needed_s = (WARMUP_STEPS + MEASURED_STEPS) * options.step_s
    epoch_s = options.epoch_steps * options.step_s
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    plugin = ["-p", "pytest_dlperf.plugin"]
    taken = {}
    with tempfile.TemporaryDirectory(prefix="ending_early_") as name:
        folder = Path(name)
        write_project(folder, options)
        for kind in KINDS:
            runs = folder / kind
            run(
                [*pytest, *plugin, "-k", kind, "--dlperf-run-dir", str(runs)],
                folder,
                {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": name, "XDG_RUNTIME_DIR": name},
            )
            records = [json.loads(file.read_text()) for file in runs.rglob("command.json")]
            taken[kind] = median(record["elapsed_s"] for record in records)
    to_end, early = taken["until_its_end"], taken["until_complete"]
    print(
        f"{options.topology}, epoch of {epoch_s:g} s, {needed_s:g} s of it needed: {to_end:.2f} s "
        f"until its end, {early:.2f} s until complete; saved {to_end - early:.2f} s per run of at "
        f"most {epoch_s - needed_s:g} s; beyond what is needed {early - needed_s:.2f} s (medians "
        f"of {options.repeats})"
    )


if __name__ == "__main__":
    main()

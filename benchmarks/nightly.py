"""How much faster a nightly gets when it shares four hosts, against one case after another.

    python benchmarks/nightly.py [--repeats 1] [--unit-s 0.5]

125 cases with trainers that sleep: 84 on one node, 22 on two and 19 on four, which take 1, 1.5 and
1.8 units of time. Whole pytest sessions are timed in turn: with `-n auto`, which makes a worker for
each host, and without workers. The hosts are loopback addresses of this machine, each for one run
at a time. No packing can beat the bound: the time of all nodes together, spread over four hosts.
What a session and a run cost beyond their trainers counts in full, though the trainers' time is
scaled down from minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from timing import interleaved, middle, run

HOSTS = 4
CASES = {1: 84, 2: 22, 4: 19}
"""How many there are, by their nodes."""
UNITS = {1: 1.0, 2: 1.5, 4: 1.8}
# Only the plugins that are needed, whatever else is installed; both sides have xdist loaded.
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PLUGINS = ["-p", "xdist.plugin", "-p", "pytest_dlperf.plugin"]

# sh and sleep, because four interpreters for a trainer would be four more than a cluster has here.
SYSTEM = """\
framework: sleeping
model: trainer
unit: samples/s
log: {{name: sleep, format: {{record: 'step (?P<step>[0-9]+) took (?P<seconds>[0-9.]+) s'}}}}
window: {{warmup_steps: 1, measured_steps: 1}}
repeats: 1
launch:
  devices: cpu
  values:
    seconds: [{choices}]
  command:
    - sh
    - -c
    - 'sleep "$1"; echo "step 1 took $1 s"; echo "step 2 took $1 s"'
    - sh
    - "{{seconds}}"
cases:
{cases}
"""
TEST = """\
def test_throughput(dlperf_case, dlperf_measure):
    assert dlperf_measure(dlperf_case).runs[0].status.value == 'ok'
"""


def bound() -> float:
    """How many times faster four hosts can be at most, if a gang has its hosts to itself."""
    serial = sum(CASES[nodes] * units for nodes, units in UNITS.items())
    on_hosts = sum(nodes * CASES[nodes] * units for nodes, units in UNITS.items())
    return serial / (on_hosts / HOSTS)


def write_project(folder: Path, unit_s: float) -> None:
    """Write the system and the test."""
    choices = ", ".join(
        f"{{when: {{nodes: {nodes}}}, value: {units * unit_s:g}}}" for nodes, units in UNITS.items()
    )
    cases = "\n".join(
        f"  - {{precision: fp32, batch_per_device: {batch}, topologies: [{topologies}]}}"
        for batch in range(1, max(CASES.values()) + 1)
        for topologies in [", ".join(f"{n}n1g" for n, count in CASES.items() if batch <= count)]
    )
    systems = folder / "bench_tests" / "systems"
    systems.mkdir(parents=True)
    text = SYSTEM.format(choices=choices, cases=cases)
    (systems / "sleeping.yaml").write_text(text, encoding="utf-8")
    (folder / "test_nightly.py").write_text(TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=1, help="counted sessions of each kind")
    parser.add_argument("--unit-s", type=float, default=0.7, help="what a case of one node sleeps")
    options = parser.parse_args()
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGINS]
    hosts = ["--dlperf-hosts", f"127.0.0.[2-{HOSTS + 1}]", "--dlperf-launcher", "local"]
    kinds = {"-n auto": ["-n", "auto"], "one after another": []}
    with tempfile.TemporaryDirectory(prefix="nightly_") as name:
        folder = Path(name)
        write_project(folder, options.unit_s)
        environment = {**ENVIRONMENT, "TMPDIR": name, "XDG_RUNTIME_DIR": name}
        sides = {
            kind: partial(
                run, [*pytest, "test_nightly.py", *hosts, *arguments], environment, folder
            )
            for kind, arguments in kinds.items()
        }
        taken = interleaved(sides, options.repeats)
    together, alone = (middle(usages).wall_s for usages in taken.values())
    trainers = options.unit_s * sum(CASES[nodes] * units for nodes, units in UNITS.items())
    print(
        f"{sum(CASES.values())} cases on {HOSTS} hosts: {alone / together:.2f} times faster with "
        f"-n auto (bound {bound():.2f}): {together:.1f} s over {alone:.1f} s, of which trainers "
        f"slept {trainers:.1f} s (medians of {options.repeats})"
    )


if __name__ == "__main__":
    main()

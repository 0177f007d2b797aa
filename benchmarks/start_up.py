"""How much the plugin adds to the start of pytest and to the collection of many cases.

    python benchmarks/start_up.py [--repeats 7]

Three comparisons, each interleaved: a project without tests of ours; picking a corner of the
shipped matrix against a pytest that collects one empty test; and collecting 10,000 cases against
10,000 plain parameters. The first two have an empty plugin on the other side: with any ``-p``, as
without PYTEST_DISABLE_PLUGIN_AUTOLOAD, pytest reads the metadata of all installed packages.
Other installed plugins are left out on both sides; byte code is cached, as pytest does by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from timing import interleaved, middle, run

ROOT = Path(__file__).resolve().parent.parent
CASES = 10_000
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": ""}

SYSTEM = """\
framework: paddle
model: resnet50
unit: images/s
log: {name: r50, format: paddle_resnet}
window: {warmup_steps: 20, measured_steps: 100}
cases:
"""
OUR_TEST = "def test_throughput(dlperf_case):\n    pass\n"
PLAIN_TEST = """\
import pytest

CASES = [f"paddle-resnet50-fp32-b{b}-{n}n8g" for b in range(1, 101) for n in range(1, 101)]

@pytest.mark.parametrize("case", CASES)
def test_throughput(case):
    pass
"""


def write_projects(folder: Path) -> None:
    """Write a project of 10,000 cases, one of 10,000 plain parameters and one of an empty test."""
    systems = folder / "cases" / "bench_tests" / "systems"
    systems.mkdir(parents=True)
    topologies = ", ".join(f"{nodes}n8g" for nodes in range(1, 101))
    entries = (
        f"  - {{precision: fp32, batch_per_device: {batch}, topologies: [{topologies}]}}\n"
        for batch in range(1, CASES // 100 + 1)
    )
    (folder / "empty_plugin.py").touch()
    (systems / "paddle-resnet50.yaml").write_text(SYSTEM + "".join(entries), encoding="utf-8")
    for name, test in (("cases", OUR_TEST), ("plain", PLAIN_TEST), ("bare", "def test(): pass\n")):
        project = folder / name
        project.mkdir(exist_ok=True)
        # As the shipped matrix has it: pytest imports what reads TOML.
        (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
        (project / "test_it.py").write_text(test, encoding="utf-8")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7, help="counted runs of each command")
    repeats = parser.parse_args().repeats
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    plugin = ["-p", "pytest_dlperf.plugin"]
    empty = ["-p", "empty_plugin"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_projects(folder)
        comparisons = (
            (
                "a project without tests of ours",
                {
                    "ours": [*pytest, *plugin, str(folder / "bare")],
                    "floor": [*pytest, *empty, str(folder / "bare")],
                },
            ),
            (
                'start-up: -k "bert and 4n8g"',
                {
                    "ours": [*pytest, *plugin, str(ROOT / "bench_tests"), "-k", "bert and 4n8g"],
                    "floor": [*pytest, *empty, str(folder / "bare")],
                },
            ),
            (
                f"collecting {CASES} cases",
                {
                    "ours": [*pytest, *plugin, str(folder / "cases" / "test_it.py")],
                    "floor": [*pytest, str(folder / "plain" / "test_it.py")],
                },
            ),
        )
        for title, commands in comparisons:
            environment = {**ENVIRONMENT, "PYTHONPATH": name}
            sides = {
                side: partial(run, command, environment, folder)
                for side, command in commands.items()
            }
            # The first round caches byte code.
            taken = interleaved(sides, repeats + 1)
            ours, floor = middle(taken["ours"][1:]), middle(taken["floor"][1:])
            print(
                f"{title}: ours {ours.wall_s:.3f} s wall, {ours.cpu_s:.3f} s CPU; "
                f"floor {floor.wall_s:.3f} s wall, {floor.cpu_s:.3f} s CPU; "
                f"ratio {ours.wall_s / floor.wall_s:.2f} wall, {ours.cpu_s / floor.cpu_s:.2f} CPU, "
                f"{(ours.cpu_s - floor.cpu_s) * 1000:.0f} ms CPU more (medians of {repeats})"
            )


if __name__ == "__main__":
    main()

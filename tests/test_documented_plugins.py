"""What docs/extending.md shows works as it stands, all of it in one session."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"

LAB = """\
framework: lab
model: tiny
unit: samples/s
log: {name: tiny, format: lab}
window: {warmup_steps: 1, measured_steps: 4}
launch:
  devices: cpu
  command: ["{python}", "-c", "for step in range(1, 7): print('it', step, 'took 0.01 s')"]
cases:
  - {precision: fp32, batch_per_device: 4, topologies: [1n1g]}
"""

PROGRAMS = {
    "kubectl": '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n',
    "desk": '#!/bin/sh\necho "$@" >> desk.txt\n[ "$1" = return ] || echo trainer-0\n',
}


@pytest.fixture
def folder(pytester, own_environment, monkeypatch):
    del own_environment
    blocks = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    pytester.makeconftest("\n".join(blocks))
    pytester.mkdir("shared").joinpath("lab.yaml").write_text(LAB, "utf-8")
    pytester.mkdir("bench_tests")
    programs = pytester.mkdir("programs")
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text, "utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return pytester.path


def test_one_session_uses_all_that_the_page_adds(pytester, folder):
    result = pytester.runpytest_subprocess(
        "bench_tests", "--dlperf-launcher", "desk", "--dlperf-repeats", "1",
        "--dlperf-create-baselines", "--csv", "medians.csv",
    )  # fmt: skip

    assert result.ret == 0, result.stdout.str()
    assert (folder / "medians.csv").read_text().startswith("lab-tiny-fp32-b4-1n1g,throughput,400")
    assert (folder / "lamp").read_text() == "green"
    orders = [line.split() for line in (folder / "desk.txt").read_text().splitlines()]
    [(number, nodes)] = [order[1:] for order in orders if order[0] == "take"]
    assert nodes == "1"
    assert ["return", number] in orders

"""Whether steps that JAX has queued are timed right, against a stopwatch inside the computation.

    python benchmarks/queued_steps.py [--size 1000]

The host runs ahead of the device and waits for it every 10, 30, 40, 60 steps or never. A callback
of the computation takes the time of each step. Needs jax. A window of 100 steps whose speed differs
by more than 1 % is a failure.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

LIMIT_PERCENT = 1.0
NEVER = 1000
FIRST, LAST = 20, 120
LOOP = """\
import sys, time
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp
from steps import StepLog
every, size = map(int, sys.argv[2:])
stamps = []
@jax.jit
def step(weights, batch):
    def loss_of(weights):
        return jnp.mean(jnp.tanh(batch @ weights) ** 2)
    loss, slope = jax.value_and_grad(loss_of)(weights)
    weights = weights - 0.1 * slope
    jax.debug.callback(lambda _: stamps.append(time.perf_counter()), loss + weights[0, 0])
    return weights, loss
weights, batch = jnp.full((size, size), 0.01), jnp.ones((256, size))
step(weights, batch)[1].block_until_ready()
del stamps[:]
log = StepLog(global_batch=256)
for k in range(1, 141):
    weights, loss = step(weights, batch)
    log.step(loss)
    if k % every == 0:
        loss.block_until_ready()
log.end()
print("stamps", *stamps)
"""


def error_percent(every: int, size: int) -> float:
    """Train once; give by how much the printed speed of the window differs, in percent."""
    steps = Path(__file__).parent.parent / "pytest_dlperf" / "trainers"
    printed = subprocess.run(
        [sys.executable, "-c", LOOP, str(steps), str(every), str(size)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    times = dict(re.findall(r"step=(\d+) time=([0-9.]+)", printed))
    told = float(times[str(LAST)]) - float(times[str(FIRST)])
    stamps = [float(stamp) for stamp in printed.splitlines()[-1].split()[1:]]
    return 100 * ((stamps[LAST - 1] - stamps[FIRST - 1]) / told - 1)


def main() -> int:
    """Run and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1000)
    size = parser.parse_args().size
    errors = {every: error_percent(every, size) for every in (10, 30, 40, 60, NEVER)}
    for every, error in errors.items():
        print(f"the host waits every {every:4} steps: {error:+.2f} %")
    return int(max(map(abs, errors.values())) > LIMIT_PERCENT)


if __name__ == "__main__":
    raise SystemExit(main())

"""Real hunts for a commit: with builds that fail, and a SIGKILL now and then.

    python benchmarks/hunts.py [--hunts 20] [--loss 0.03] [--seed 0]

Each has a repository of 64 commits and a training on the CPU whose runs differ by 1 %. One commit
makes it slower, one in twenty does not build. Every other hunt runs over ssh (sshd on a loopback
address). Hunts are killed three times at random and begun again by the same command. A hunt is
right if it names the commit, or it and neighbours that do not build. The history has three nights
of five runs each, two of the good commit and one of the bad one, as after a red night. The hunt's
runs are held against `git bisect` that knows the threshold, and takes at each of its steps the
median of as many runs as make it right as often: the bar is half of these, for all hunts together.
A single one may take more: its length follows from what it sees, and 13 of 100 simulated ones do.
Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import NormalDist
from typing import Final

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from clusters.ports import free_ports
from clusters.ssh import SshHosts
from hunted_repository import CASE, HuntedRepository

WORKER: Final = 24
"""Ports and addresses are apart from those of the tests' workers."""
COMMITS: Final = 64
NOISE: Final = 0.01
STEP_S: Final = 0.1
KILLS: Final = 3
ACCURACY: Final = 0.97


def runs_of_git_bisect(distance: float) -> int:
    """Runs of `git bisect` that is right in `ACCURACY`; the loss in standard deviations."""
    steps, runs = round(math.log2(COMMITS)), 1
    while True:
        # The standard deviation of a median of so many.
        deviation = 1.0 if runs == 1 else 1.2533 / math.sqrt(runs + 0.57)
        if NormalDist().cdf(distance / 2 / deviation) ** steps >= ACCURACY:
            return steps * runs
        runs += 2


def hunt(
    folder: Path, draw: random.Random, loss: float, environment: dict[str, str]
) -> tuple[bool, int, int, str]:
    """Hunt in a new repository: whether it was right, its runs, those of Git, what it said."""
    repository = HuntedRepository(folder)
    repository.set_up()
    slow = draw.randint(1, COMMITS)
    broken = {one for one in range(1, COMMITS) if draw.random() < 0.05}  # noqa: PLR2004
    repository.trainer(STEP_S)
    for number in range(COMMITS + 1):
        if number == slow:
            repository.trainer(STEP_S / (1 - loss))
        flag = folder / "broken"
        flag.unlink(missing_ok=True)
        if number in broken:
            flag.touch()
        repository.commit(f"Change number {number}")
    repository.nights(*(f"--dlperf-{k[7:].lower()}={v}" for k, v in environment.items()))
    ends = f"{repository.commits[0]}..{repository.commits[-1]}"
    words = ("bisect", ends, "--case", CASE, "--build", "test ! -e broken", "--yes")
    for _ in range(KILLS):
        program = repository.start(*words, **environment)
        time.sleep(draw.uniform(3, 20))
        program.send_signal(signal.SIGKILL)
        program.communicate()
    _, output = repository.run(*words, **environment)
    said = next((line for line in output.splitlines() if line.startswith(CASE)), output)
    named = re.findall(r"\b[0-9a-f]{12}\b", said.partition("found: ")[2])
    # All between the named ones does not build.
    places = [place for place, name in enumerate(repository.commits) if name[:12] in named]
    between = range(min(places, default=0), max(places, default=0))
    is_right = slow in places and all(place in broken for place in between)
    runs = re.search(r"spent: ([0-9]+) runs", output)
    [journal] = folder.glob(".dlperf/hunts/*/hunt.jsonl")
    entries = map(json.loads, journal.read_text(encoding="utf-8").splitlines())
    known = next(entry["ends"]["hunt"] for entry in entries if entry.get("ends"))
    # On a busy machine runs differ by more than was planted.
    bar = runs_of_git_bisect(loss / max(known["noise"], NOISE))
    return is_right, int(runs[1]) if runs else 0, bar, said


def main() -> int:
    """Hunt, and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hunts", type=int, default=20)
    parser.add_argument("--loss", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    right, taken, bars = 0, [], []
    with ExitStack() as stack:
        temporary = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="hunts-", ignore_cleanup_errors=True)
        )
        keys = Path(temporary, "ssh")
        keys.mkdir()
        names = [f"127.0.{WORKER}.2"]
        hosts = SshHosts(folder=keys, names=names, port=free_ports(1, worker=WORKER)[0])
        stack.callback(hosts.tear_down)
        hosts.set_up()
        over_ssh = {"DLPERF_SSH": hosts.ssh_command, "DLPERF_HOSTS": f"{names[0]}:1"}
        for number in range(given.hunts):
            began = time.monotonic()
            where = over_ssh if number % 2 else {}
            draw = random.Random(given.seed + number)  # noqa: S311 - where it is planted
            is_right, runs, bar, said = hunt(Path(temporary, str(number)), draw, given.loss, where)
            right += is_right
            taken.append(runs)
            bars.append(bar)
            print(
                f"{number + 1}: {'right' if is_right else 'WRONG'}, {'ssh' if where else 'local'}, "
                f"{runs} runs (git bisect: {bar}), {time.monotonic() - began:.0f} s: {said}",
                flush=True,
            )
    share = sum(taken) / sum(bars)
    longer = sum(2 * runs > bar for runs, bar in zip(taken, bars, strict=True))
    print(
        f"{right} of {given.hunts} right; {sum(taken)} runs, {share:.2f} of those of git bisect; "
        f"{longer} took more than half of them"
    )
    return int(right < 0.95 * given.hunts or share > 0.5)  # noqa: PLR2004


if __name__ == "__main__":
    sys.exit(main())

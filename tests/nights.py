"""Logs of whole nights of the tiny system, with the throughputs that a test wants."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import log_makers
import yaml
from suites import Suite
from trainers import SYSTEM, TinySystem

from pytest_dlperf.model.case import Topology

BATCH = 4
STEPS = 10
TOPOLOGIES = ("1n1g", "1n2g")
LEVELS = {"1n1g": 400.0, "1n2g": 760.0}
"""Samples per second on a usual night."""


class Nights:
    """A suite whose tiny system is judged from logs, one folder per night."""

    def __init__(self, suite: Suite, topologies: Sequence[str] = TOPOLOGIES) -> None:
        self.suite = suite
        TinySystem(suite, topologies=topologies)
        self._topologies = topologies

    def declare(self, metrics: str) -> None:
        """Have the system declare metrics, as the text of a system file."""
        file = self.suite.path / "bench_tests" / "systems" / "own.yaml"
        text, cases, rest = file.read_text(encoding="utf-8").partition("\ncases:")
        text = text.partition("\nmetrics:")[0]
        file.write_text(f"{text}\nmetrics:\n{metrics}{cases}{rest}", encoding="utf-8")

    def night(self, name: str, runs: Mapping[str, Sequence[float]], printed: str = "") -> list[str]:
        """Write the logs of a night and give the arguments that judge them.

        ``runs`` are the throughputs of the runs by topology, in samples/s; ``printed`` stands in
        front of each log.
        """
        folder = self.suite.path / "nights" / name
        for topology, throughputs in runs.items():
            world_size = Topology.parse(topology).world_size
            for number, throughput in enumerate(throughputs, 1):
                times = [BATCH * world_size / throughput] * STEPS
                log = folder / topology / f"mlp_b{BATCH}_fp32_{number}.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                text = log_makers.dlperf([times] * world_size)
                log.write_text(printed + text, encoding="utf-8")
        return ["-k", "tiny", "--dlperf-logs", f"{SYSTEM}={folder}"]

    def usual(self, name: str, *, runs: int = 5, printed: str = "", **factors: float) -> list[str]:
        """The arguments that judge a night at the usual level, or at so many times it."""
        return self.night(name, self.numbers(name, runs=runs, **factors), printed)

    def numbers(self, name: str, *, runs: int = 5, **factors: float) -> dict[str, list[float]]:
        """The throughputs of such a night; runs differ by about 1 %."""
        draw = random.Random(name)  # noqa: S311 - the same night every time
        return {
            topology: [
                LEVELS[topology] * factors.get(f"of_{topology}", 1.0) * draw.gauss(1, 0.008)
                for _ in range(runs)
            ]
            for topology in self._topologies
        }

    def accept(self, *sessions: Mapping[str, Sequence[float]]) -> None:
        """Write accepted numbers: of the first session, with the later ones added to it."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        (self.file.parent / "cluster.yaml").write_text("estimator: steady\n", encoding="utf-8")
        first, *later = sessions
        entries: dict[str, dict[str, object]] = {}
        for topology, runs in first.items():
            throughput: dict[str, object] = {
                "accepted": median(runs),
                "runs": dict(enumerate(runs, 1)),
            }
            if later:
                throughput["sessions"] = [
                    {"at": f"2026-11-{day:02}T02:00:00+01:00", "runs": list(session[topology])}
                    for day, session in enumerate(later, 1)
                ]
                # As sessions have left it that do not differ.
                throughput["spread"] = {"losses": [[0.0, 0.2]] * 12}
            entries[topology] = {
                "throughput": throughput,
                "speedup": median(runs) / median(first["1n1g"]),
            }
        document = {
            "system": SYSTEM,
            "metrics": {
                "throughput": {"unit": "samples/s", "better": "higher"},
                "speedup": {"unit": "x", "better": "higher"},
            },
            "estimator": "steady",
            "entries": {"fp32-b4": entries},
        }
        self.file.write_text(
            yaml.safe_dump(document, sort_keys=False, default_flow_style=None), encoding="utf-8"
        )

    @property
    def file(self) -> Path:
        """The system's accepted numbers on this machine."""
        return self.suite.path / "baselines" / "local" / f"{SYSTEM}.yaml"

    @property
    def text(self) -> str:
        """What stands in that file, line ends as they are."""
        return self.file.read_bytes().decode("utf-8")

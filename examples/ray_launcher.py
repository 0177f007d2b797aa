"""Train on the nodes of a Ray cluster: a launcher, and the program that it runs here for each node.

Put this file where pytest is started, on a node of the cluster, and name its nodes:

    python -m pytest bench_tests -p ray_launcher --dlperf-launcher ray \
        --dlperf-hosts "$(python ray_launcher.py hosts)"
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.launch.hosts import Host

CHUNK = 1 << 16


def pytest_dlperf_launchers(python: str) -> list[Any]:
    """Offer the launcher."""
    from pytest_dlperf.launch.launchers import Launcher

    class RayLauncher(Launcher):
        """Runs each node's program in an actor, which has all CPUs and GPUs of its node."""

        name = "ray"
        queues = True

        def command(
            self, host: Host, program: Sequence[str], *, alongside: bool = False
        ) -> list[str]:
            """Give the relay; what does little takes nothing of the node."""
            share = "shared" if alongside else "whole"
            return [sys.executable, __file__, host.name, share, *program]

    return [RayLauncher(python)]


class Remote:
    """The program on its node. However its actor ends, its input ends, and then it does."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start it without what Ray tells its own workers, which is none of a trainer's."""
        of_ray = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in of_ray and not name.startswith("RAY_")
        }
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=kept)  # noqa: S603 - the supervisor

    def write(self, data: bytes) -> None:
        """Give it input; nothing is the end."""
        entrance: Any = self.process.stdin
        if data:
            entrance.write(data)
            entrance.flush()
        else:
            entrance.close()

    def read(self, stream: str) -> bytes:
        """Wait for output; nothing is the end."""
        data: bytes = getattr(self.process, stream).read1(CHUNK)
        return data

    def wait(self) -> int:
        """Wait for its end."""
        return self.process.wait()


def relay(address: str, share: str, *words: str) -> int:
    """Run a program on a node with the standard streams of this process."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = next(node for node in nodes() if node["NodeManagerAddress"] == address)
    taken = node["Resources"] if share == "whole" else {}
    actor = ray.remote(Remote).options(
        num_cpus=taken.get("CPU", 0),
        num_gpus=taken.get("GPU", 0),
        max_concurrency=4,  # input, both outputs, and the end
        scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
    )
    remote = actor.remote(words)

    def give() -> None:
        data = b"anything"
        while data:
            data = os.read(0, CHUNK)
            ray.get(remote.write.remote(data))

    def take(stream: str, target: int) -> None:
        while data := ray.get(remote.read.remote(stream)):
            while data:
                data = data[os.write(target, data) :]

    threading.Thread(target=give, daemon=True).start()
    errors = threading.Thread(target=take, args=("stderr", 2), daemon=True)
    errors.start()
    take("stdout", 1)
    errors.join()
    code: int = ray.get(remote.wait.remote())
    return code


def nodes() -> list[dict[str, Any]]:
    """Join the cluster of this machine, and list its nodes."""
    import ray

    ray.init(address="auto", log_to_driver=False, logging_level="error")
    return [node for node in ray.nodes() if node["Alive"]]


if __name__ == "__main__":
    if sys.argv[1:] == ["hosts"]:
        print(  # noqa: T201 - for --dlperf-hosts
            ",".join(
                f"{node['NodeManagerAddress']}:{node['Resources'].get('GPU', 1):.0f}"
                for node in nodes()
            )
        )
    else:
        # At once: the thread that reads this process's input does not end.
        os._exit(relay(*sys.argv[1:]) % 256)

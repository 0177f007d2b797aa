"""What a thousand nodes cost the process that runs pytest: to start, to watch and to end them.

`launch_overhead.py --scale` calls it. Nodes are played by a shell script each: real processes,
real pipes, and reports as a supervisor gives them, at a moment of its own in each second. What is
counted is the processor time of this process alone, so the players may share its cores; seconds
on a clock they do spoil. One node prints a step a second, or all do. What the OpenSSH client costs
is measured with as many real hosts as asked for, and reckoned up from there.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.watch import RunWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.launch.record import Stopped

STEPS = 10

# $1: the bytes of the supervisor, which is not run. $2: a pipe that nobody writes into. $3: how
# long to wait for it, which is to sleep without another process. $4: whether the node prints.
PLAYER = """\
exec 9<>"$2"
head -c "$1" >/dev/null
echo '{"ready": "3.11"}'
step=0
while read -r word rest; do
    case $word in
    prepare) echo '{"prepared": true}' ;;
    start) step=1; echo '{"started": 4711}' ;;
    end | kill) echo '{"ended": -15}'; echo '{"final": {}}'; exit ;;
    '')
        read -rt "$3" -u 9
        if [ "$step" != 0 ] && [ "$4" = yes ]; then
            echo "step $step at $step.0" >&2
            step=$((step + 1))
        fi
        echo '{}'
        ;;
    esac
done
"""


class Players(Launcher):
    """A launcher to hosts that a shell script plays."""

    name = "players"

    def __init__(self, pipe: Path, *, all_print: bool) -> None:
        """Have one node print, or all."""
        super().__init__()
        self._pipe = pipe
        self._all_print = all_print

    def command(self, host: Host, program: Sequence[str], **_: Any) -> list[str]:
        """Give the script with what it has to know."""
        number = int(host.name.removeprefix("node"))
        size = next(word for word in program if word.isdigit())
        prints = "yes" if self._all_print or number == 1 else "no"
        pause = f"0.{number * 617 % 997:03}"
        return ["bash", "-c", PLAYER, "bash", size, str(self._pipe), pause, prints]


class TimedWatch(RunWatch):
    """Notes when it looks, and the processor time until then."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Begin before the run does."""
        super().__init__(*arguments, **named)
        self.looks: list[tuple[float, float]] = []

    def look(self) -> Stopped | None:
        """Look, and note it."""
        self.looks.append(moment())
        return super().look()


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds and processor seconds of this process; ``clients_s`` those of what it started."""

    start_s: float
    start_cpu_s: float
    watched_s: float
    watched_cpu_s: float
    end_s: float
    end_cpu_s: float
    clients_cpu_s: float


def moment() -> tuple[float, float]:
    """Return the time, and the processor time of this process."""
    return time.perf_counter(), time.process_time()


def children_cpu_s() -> float:
    """Return the processor time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost_of(run: Callable[[type[TimedWatch]], TimedWatch]) -> Cost:
    """Measure a run by what its watch has noted."""
    clients = children_cpu_s()
    began = moment()
    looks = run(TimedWatch).looks
    ended = moment()
    first, last = looks[0], looks[-1]
    return Cost(
        start_s=first[0] - began[0],
        start_cpu_s=first[1] - began[1],
        watched_s=last[0] - first[0],
        watched_cpu_s=last[1] - first[1],
        end_s=ended[0] - last[0],
        end_cpu_s=ended[1] - last[1],
        clients_cpu_s=children_cpu_s() - clients,
    )


@contextmanager
def played(nodes: int, *, all_print: bool) -> Iterator[tuple[Players, list[Host]]]:
    """Hosts that a script plays, and the way to them."""
    with tempfile.TemporaryDirectory(prefix="launch_scale_") as folder:
        pipe = Path(folder) / "nothing"
        os.mkfifo(pipe)
        hosts = [
            Host(name=f"node{number}", address=f"10.1.{number >> 8}.{number & 255}")
            for number in range(1, nodes + 1)
        ]
        yield Players(pipe, all_print=all_print), hosts


def line_of(nodes: int, cost: Cost) -> str:
    """Write a cost for the reader."""
    share = 100 * cost.watched_cpu_s / cost.watched_s
    return (
        f"{nodes:5} nodes: start {cost.start_s:5.2f} s, {1e3 * cost.start_cpu_s / nodes:5.2f} ms "
        f"of a core per node; watching {share:5.2f} % of a core, {100 * share / nodes:5.2f} % per "
        f"100 nodes; end {cost.end_s:5.2f} s, {1e3 * cost.end_cpu_s / nodes:5.2f} ms of a core per "
        "node"
    )


def reckoned(nodes: int, own_s: float, client_s: float, cores: int) -> float:
    """Reckon how long so many connections take: clients run beside each other, this runs once."""
    return max(own_s * nodes, (own_s + client_s) * nodes / cores)

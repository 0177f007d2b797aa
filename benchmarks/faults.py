"""What is left of a run, however it ends: faults of all kinds, with each launcher.

    python benchmarks/faults.py [--launchers local,ssh,slurm,sbatch,mpirun,kubernetes]
                                [--only WORDS] [--repeat 1]

In each cell a session trains on two nodes with a trainer that does not want to end: it ignores
signals, leaves its parents and its session, and clears its environment. Then something happens.
Counted is what still runs ten seconds later, by its arguments, and what has led to it; and how long
it took until nothing was left. Afterwards a tame session on the same hosts has to wait for nothing,
to pass, and to leave nothing of either.

The table is Markdown; `docs/faults.md` sums it up. With `--repeat`, a cell is the worst of its
tries; empty is what the launcher does not have. What does not hold is listed below the table, and
makes it exit with 1.

Marks are none that sessions beside it know: these would end what is left, and hide it. All nodes
are this machine: sshd on addresses of network namespaces (on loopback without root, and nothing is
cut then), a Slurm of its own, Open MPI over that ssh, and a stand-in for Kubernetes whose pods are
processes.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

TESTS: Final = Path(__file__).resolve().parent.parent / "tests"
sys.path.append(str(TESTS))

from clusters.kubernetes import Kubernetes  # noqa: E402 - they lie beside, in no package
from clusters.network import Network  # noqa: E402 - as above
from clusters.ports import free_ports  # noqa: E402 - as above
from clusters.requirements import missing  # noqa: E402 - as above
from clusters.slurm import Slurm  # noqa: E402 - as above
from clusters.ssh import SshHosts  # noqa: E402 - as above
from fault_matrix.cell import Outcome, run_cell  # noqa: E402 - as above
from fault_matrix.faults import FAULTS  # noqa: E402 - as above
from fault_matrix.places import (  # noqa: E402 - as above
    LAUNCHERS,
    by_kubernetes,
    by_mpirun,
    held_by_sbatch,
    in_slurm,
    local,
    over_ssh,
)
from fault_matrix.session import NotUpError, Session, last_line  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fault_matrix.faults import Fault
    from fault_matrix.places import Place

WORKER: Final = 18
"""Ports and addresses are apart from those of the tests' workers."""


@contextmanager
def ssh_hosts(folder: Path) -> Iterator[tuple[SshHosts, Network | None]]:
    """Hosts that are reached by ssh, on a network of their own where that can be made."""
    if missing("network") is None:
        network = Network(folder, WORKER)
        try:
            network.set_up()
            yield network.hosts, network
        finally:
            network.tear_down()
        return
    names = [f"127.0.{WORKER}.{number}" for number in range(2, 6)]
    plain = SshHosts(folder=folder, names=names, port=free_ports(1, worker=WORKER)[0])
    try:
        plain.set_up()
        yield plain, None
    finally:
        plain.tear_down()


@contextmanager
def ground(launcher: str, folder: Path) -> Iterator[Callable[[], AbstractContextManager[Place]]]:
    """Have what a launcher needs; give what makes two nodes of it, as new each time."""
    if launcher == "local":
        yield lambda: nullcontext(local())
    elif launcher == "kubernetes":
        cluster = Kubernetes(folder, WORKER)
        try:
            cluster.set_up()
            yield lambda: _in_clean_cluster(cluster)
        finally:
            cluster.tear_down()
    elif launcher in {"slurm", "sbatch"}:
        slurm = Slurm(folder, WORKER)
        try:
            slurm.set_up()
            yield lambda: _in_clean_slurm(slurm, holds=launcher == "sbatch")
        finally:
            slurm.tear_down()
    else:
        with ssh_hosts(folder) as (hosts, network):
            by = by_mpirun(hosts, folder, network) if launcher == "mpirun" else None
            yield lambda: _on_clean_hosts(by or over_ssh(hosts, network), network or hosts)


@contextmanager
def _in_clean_slurm(slurm: Slurm, *, holds: bool) -> Iterator[Place]:
    with nullcontext(held_by_sbatch(slurm)) if holds else in_slurm(slurm) as place:
        yield place
    slurm.reset()


@contextmanager
def _in_clean_cluster(cluster: Kubernetes) -> Iterator[Place]:
    yield by_kubernetes(cluster)
    cluster.reset()


@contextmanager
def _on_clean_hosts(place: Place, hosts: SshHosts | Network) -> Iterator[Place]:
    yield place
    hosts.reset()


def measure(
    fault: Fault, place: Callable[[], AbstractContextManager[Place]], folder: Path, repeats: int
) -> list[Outcome]:
    """Run a cell so often; empty where the place cannot have it."""
    outcomes: list[Outcome] = []
    for number in range(repeats):
        with place() as here:
            session = Session(folder=folder / str(number), place=here)
            try:
                outcome = run_cell(session, fault)
            except NotUpError as error:
                outcome = Outcome(
                    told=f"the trainer did not come up: {last_line(str(error))}", is_told=False
                )
        if outcome is None:
            return []
        outcomes.append(outcome)
    return outcomes


def text_of(outcomes: Sequence[Outcome]) -> str:
    """Write a cell: the seconds until nothing was left, or in bold how much was."""
    if not outcomes:
        return ""
    if any(outcome.swept for outcome in outcomes):
        return "next run"
    left = max(len(outcome.left) for outcome in outcomes)
    seconds = max(outcome.seconds for outcome in outcomes)
    return f"**{left}**" if left else f"{seconds:.1f}"


def chosen(words: str) -> list[Fault]:
    """Give the faults whose names hold all of these words."""
    return [fault for fault in FAULTS if all(word in fault.name for word in words.split())]


def main() -> int:
    """Run the cells, and print the table; 1 if one of them does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--launchers", default=",".join(LAUNCHERS))
    parser.add_argument("--only", default="", help="words that a fault's name has to hold")
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    # What runs is ended, however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    launchers = given.launchers.split(",")
    faults = chosen(given.only)
    cells: dict[tuple[str, str], list[Outcome]] = {}
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as temporary:
        for launcher in launchers:
            folder = Path(temporary, launcher)
            folder.mkdir()
            with ground(launcher, folder) as place:
                for number, fault in enumerate(faults):
                    outcomes: list[Outcome] = []
                    if launcher in fault.launchers:
                        outcomes = measure(fault, place, folder / f"cell{number}", given.repeat)
                    cells[launcher, fault.name] = outcomes
                    print(f"{launcher}: {fault.name}: {text_of(outcomes)}", file=sys.stderr)
                    for outcome in outcomes:
                        for line in (f"told: {outcome.told}", *outcome.problems()):
                            print(f"    {line}", file=sys.stderr, flush=True)
    titles = [LAUNCHERS[launcher] for launcher in launchers]
    print(f"| What happens | {' | '.join(titles)} |")
    print("|---|" + "---|" * len(launchers))
    for fault in faults:
        row = [cells[launcher, fault.name] for launcher in launchers]
        print(f"| {' | '.join([fault.name, *map(text_of, row)])} |")
    print()
    problems = [
        f"{LAUNCHERS[launcher]}, {name}: {problem}"
        for (launcher, name), outcomes in cells.items()
        for outcome in outcomes
        for problem in outcome.problems()
    ]
    print("\n".join(f"- {problem}" for problem in dict.fromkeys(problems)))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

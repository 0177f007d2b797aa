"""What the companions of a red training blame, in nights in which a host has lost something.

    python benchmarks/companions.py [--nights 20] [--only sound,network,disk,compute] [--folder DIR]

A training of four hosts over ssh, each in a network namespace of its own, computes, sums over gloo
and writes to disk. In a night the third host has lost its link (20 Mbit/s by tbf), its disk
(1 MB/s by blkio) or its processors (a tenth of one by a quota), or nothing. Counted is what the
night's explanation blames, and how often the training was red at all.

The table is Markdown. It needs root, iproute2, openssh-server and cgroups of version 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent.parent / "tests"
sys.path.append(str(TESTS))

from clusters.network import Network  # noqa: E402 - they lie beside, in no package
from companion_nights import RESOURCES, Nights, blamed, cannot  # noqa: E402 - as above

SUBNET: Final = 19
SOUND: Final = "sound"


def main() -> None:
    """Run the nights, one of each kind in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=20, help="of each kind")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[SOUND, *RESOURCES])
    parser.add_argument("--folder", type=Path, help="on the disk that is throttled")
    given = parser.parse_args()
    for kind in given.only:
        if kind != SOUND and (problem := cannot(kind)):
            raise SystemExit(f"{kind} {problem}")
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in given.only}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        network = Network(Path(folder), SUBNET)
        try:
            network.set_up()
            suite = Path(folder, "suite")
            suite.mkdir()
            nights = Nights(suite, network)
            nights.set_up()
            accepted = nights.accept()
            if accepted.returncode != 0:
                raise SystemExit(accepted.stdout)
            for number in range(given.nights):
                for kind in given.only:
                    began = time.monotonic()
                    with nights.without(None if kind == SOUND else kind):
                        verdict, explanation, output = nights.night()
                    found = ", ".join(blamed(explanation)) or "nothing"
                    counts[kind].update(["nights", found, f"verdict {verdict}"])
                    seconds = time.monotonic() - began
                    print(f"{number} {kind}: {verdict}, {found} ({seconds:.0f} s)", flush=True)
                    if found != (kind if kind != SOUND else "nothing"):
                        print("\n".join(x for x in output.splitlines() if " same hosts " in x))
        finally:
            network.tear_down()
    print("| What the third host has lost | Nights | Red | Blamed |\n|---|---|---|---|")
    for kind, count in counts.items():
        total, passed = count.pop("nights"), count["verdict pass"] + count["verdict improved"]
        told = (f"{what}: {n}" for what, n in count.most_common() if not what.startswith("verdict"))
        lost = "nothing" if kind == SOUND else kind
        print(f"| {lost} | {total} | {total - passed} | {', '.join(told)} |")


if __name__ == "__main__":
    main()

"""What a release manager gets after eight bad nights: real sessions, their causes known.

    python benchmarks/mornings.py [--only 1,4] [--repeats 2] [--into /tmp/mornings]

Each night has two torch trainings on two hosts over ssh (sshd on loopback addresses), in a Git
repository with commits of several people, with accepted numbers and a history. Something happens,
and the nightly session runs as ever: `--dlperf-strict -n 2`, told by mail and pull request. What
comes is left in a folder per night: `mail.eml` and `comment.md` as servers here received them,
`page.html`, the page's head as a picture; `output.txt`, what the terminal showed, with `--why` the
cause at its end; `overdue.eml` where a night did not come. What has really happened stands in one
file beside, `…-answers.md`: read it last.

Tonight is always a real session. Earlier nights cannot be waited for: they are real sessions of
this script, a good one and one with the change where that is older, whose results files get an
earlier time, the commits of then and noise of 0.8 %, and are imported. The accepted numbers are
recorded by a session and set back likewise. Steps mostly sleep, so that numbers repeat on a busy
machine, and what slows them down is what the trainer reads: a variable, a package, an argument.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

import browser
from clusters.ports import free_ports
from clusters.ssh import SshHosts
from morning_lab import Lab, identity
from notice_servers import Forge, mail_server, web_server

WORKER: Final = 23
"""Ports and addresses are apart from those of the tests' workers."""
ACCEPTED: Final = 20
"""Days since the numbers were accepted."""
WIDTH: Final = 1280


@dataclass(slots=True)
class Known:
    """The real sessions that earlier nights are made of."""

    lab: Lab
    good: dict[str, Any]
    tonight: list[str] = field(default_factory=list)
    """Further arguments of tonight's session."""
    why: tuple[str, ...] = ()
    """Those that have it ask for the cause."""

    def good_nights(self, first: int, last: int) -> None:
        """Have had good nights, from so many days ago until so many."""
        for days_ago in range(first, last - 1, -1):
            self.lab.night(self.good, days_ago)


def a_variable(known: Known) -> str:
    """Tonight alone; it stands in no commit."""
    known.lab.note("ben", 3.5, "Say whom to ask for hosts")
    known.good_nights(ACCEPTED - 1, 1)
    known.tonight += ["--dlperf-set", "*.env.LOADER_PREFETCH=1"]
    return "the nightly job sets the variable LOADER_PREFETCH=1 since tonight; in no commit"


def a_package(known: Known) -> str:
    """Tonight alone; nobody has changed the suite."""
    known.lab.note("chen", 6.5, "Name the room of the hosts")
    known.good_nights(ACCEPTED - 1, 1)
    known.lab.install("0.21.0", 0.08)
    return (
        "tokenizers 0.21.0 in place of 0.20.3 since tonight, which takes longer: the encoder alone"
    )


def an_argument(known: Known) -> str:
    """A commit of yesterday, among others."""
    lab = known.lab
    lab.note("ben", 2.5, "Tell when the hosts are maintained")
    known.good_nights(ACCEPTED - 1, 1)
    lab.write_system("encoder", ', "--checkpoint-activations=full"')
    commit = lab.commit(lab.bench, "dana", 0.6, "Make room for longer sequences")
    lab.note("chen", 0.3, "Thank the new colleague")
    return (
        f"Dana Novak's commit {commit} of the suite has --checkpoint-activations=full for the "
        "encoder, since tonight; Chen Wei's commit after it is innocent"
    )


def three_nights(known: Known) -> str:
    """A commit to the trainer, four days ago."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 4)
    lab.note("ben", 3.7, "Tell when the hosts are maintained")
    lab.change_trainer("log.step(", "time.sleep(0.07)  # save the metrics\n    log.step(")
    commit = lab.commit(lab.models, "chen", 3.4, "Save metrics in each step")
    lab.note("dana", 1.5, "Say where the data come from")
    _, slow = lab.session("-n", "2")
    for days_ago in (3, 2, 1):
        lab.night(slow, days_ago)
    return (
        f"Chen Wei's commit {commit} of the trainer, 'Save metrics in each step': slow since three "
        "nights before tonight; commits of the suite are innocent"
    )


def a_gain(known: Known) -> str:
    """A commit to the trainer, nine days ago; the numbers were never accepted."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 9)
    lab.change_trainer("STEP_S = 0.16", "STEP_S = 0.10")
    commit = lab.commit(lab.models, "dana", 8.4, "Fuse the optimizer")
    _, fast = lab.session("-n", "2")
    for days_ago in range(8, 0, -1):
        lab.night(fast, days_ago)
    return (
        f"Dana Novak's commit {commit} of the trainer, 'Fuse the optimizer': faster since eight "
        "nights before tonight; nobody has accepted it, so a later loss of as much would pass"
    )


def no_host(known: Known) -> str:
    """Its sshd has ended."""
    known.good_nights(ACCEPTED - 1, 1)
    gone = known.lab.hosts.names[-1]
    known.lab.hosts.stop(gone)
    return f"the sshd of {gone} has ended: cases of two nodes cannot run"


def no_night(known: Known) -> str:
    """Last night is missing; two things have changed since the night before."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 2)
    lab.import_nights()
    lab.install("0.20.4", 0.0)
    lab.write_system("detector", ', "--checkpoint-activations=full"')
    commit = lab.commit(lab.bench, "ben", 1.6, "Have the detector fit small devices")
    return (
        "last night's session never began. Since one of the two nights: Ben Okafor's commit "
        f"{commit} of the suite, --checkpoint-activations=full for the detector. tokenizers 0.20.4 "
        "came in the same two days and is innocent"
    )


def a_drift(known: Known) -> str:
    """Over six weeks; nothing that is recorded has changed."""
    lab = known.lab
    since = 42
    lab.set_back_acceptance(since + 10)
    lab.commit(lab.bench, "ana", since + 10, "Accept the numbers of the new hosts")
    lab.shards(56)
    for days_ago in range(since + 9, 0, -1):
        share = max(0, since - days_ago) / since
        lab.night(known.good, days_ago, factor=1 / (1 + 0.285 * share))
    return (
        "the folder data of the trainer has grown from 8 to 56 shards in six weeks, and each costs "
        "the loader 1 ms: nothing that is recorded has changed"
    )


Scenario = Callable[[Known], str]
SCENARIOS: Final[tuple[Scenario, ...]] = (
    a_variable,
    a_package,
    an_argument,
    three_nights,
    a_gain,
    no_host,
    no_night,
    a_drift,
)


def prepare(lab: Lab) -> dict[str, Any]:
    """Record and accept the numbers, and measure a good session."""
    lab.set_up()
    why = "first numbers of the new hosts"
    lab.session("--dlperf-update-baselines", "--dlperf-reason", why, **identity("ana"))
    lab.set_back_acceptance(ACCEPTED)
    lab.commit(lab.bench, "ana", ACCEPTED - 0.5, "Accept the numbers of the new hosts")
    code, good = lab.session("-n", "2")
    if code:
        raise RuntimeError((lab.folder / "output.txt").read_text("utf-8"))
    shutil.rmtree(lab.bench / ".dlperf")
    lab.keep()
    return good


def stage(known: Known, scenario: Scenario, folder: Path) -> str:
    """Have a night, and keep what comes of it in a folder; what really happened."""
    lab = known.lab
    lab.reset()
    lab.mail.mails.clear()
    lab.forge.comments.clear()
    known.tonight.clear()
    answer = scenario(known)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if scenario is no_night:
        lab.command(
            *("history", "overdue", "--within", "26h"), *("--to", "mail=release@example.org")
        )
        (folder / "overdue.eml").write_bytes(lab.mail.mails.pop().as_bytes())
    lab.import_nights()
    page = lab.folder / "page.html"
    code, _ = lab.session(
        *("--dlperf-strict", "-n", "2", "--dlperf-html", str(page), *known.tonight, *known.why),
        **lab.in_ci(),
    )
    shutil.copy(lab.folder / "output.txt", folder)
    shutil.copy(page, folder)
    [mail] = lab.mail.mails
    [comment] = lab.forge.comments
    (folder / "mail.eml").write_bytes(mail.as_bytes())
    (folder / "comment.md").write_text(comment["body"], encoding="utf-8")
    lab.hosts.start(*lab.hosts.names)
    return f"{answer}. The session ended with exit code {code}"


def draw(folders: list[Path]) -> None:
    """Draw the head of each page, where there is Chromium."""
    if browser.chromium() is None:
        return
    with browser.started() as chromium:
        for folder in folders:
            with browser.opened(chromium, folder / "page.html", width=WIDTH) as (page, _):
                page.screenshot(path=folder / "page-head.png")


def main() -> None:
    """Have the nights, and say where what came of them lies."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=2, help="runs of each case in a session")
    numbers = ",".join(str(number) for number, _ in enumerate(SCENARIOS, 1))
    parser.add_argument("--only", default=numbers, help="numbers of nights, such as 1,4")
    parser.add_argument("--why", action="store_true", help="have red sessions try the cause apart")
    parser.add_argument("--into", type=Path, default=Path(tempfile.gettempdir(), "mornings"))
    given = parser.parse_args()
    # What runs is ended, however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [int(number) for number in given.only.split(",")]
    answers, began = [], time.monotonic()
    with ExitStack() as stack:
        temporary = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True)
        )
        web, mail = stack.enter_context(web_server()), stack.enter_context(mail_server())
        keys = Path(temporary, "ssh")
        keys.mkdir()
        names = [f"127.0.{WORKER}.{number}" for number in (2, 3)]
        hosts = SshHosts(folder=keys, names=names, port=free_ports(1, worker=WORKER)[0])
        stack.callback(hosts.tear_down)
        hosts.set_up()
        lab = Lab(
            folder=Path(temporary, "lab"),
            hosts=hosts,
            mail=mail,
            web=web,
            forge=Forge(web, {"login": "nightly[bot]", "id": 7, "type": "Bot"}),
            now=datetime.now(timezone.utc),
            repeats=given.repeats,
        )
        why = ("--dlperf-why", "--dlperf-why-budget=60") if given.why else ()
        known = Known(lab, prepare(lab), why=why)
        print(f"good session: {time.monotonic() - began:.0f} s", flush=True)
        for number in chosen:
            scenario = SCENARIOS[number - 1]
            answer = stage(known, scenario, given.into / str(number))
            answers.append(f"{number}. {answer}.\n")
            given.into.with_name(f"{given.into.name}-answers.md").write_text(
                "".join(answers), encoding="utf-8"
            )
            print(
                f"{number}: {given.into / str(number)}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    draw([given.into / str(number) for number in chosen])
    print(f"all: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

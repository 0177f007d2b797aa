"""What a release manager gets after seventeen nights: real sessions, their causes known.

    python benchmarks/mornings.py [--only 1,4] [--repeats 2] [--into /tmp/mornings]

Each night has two torch trainings on two hosts over ssh (sshd on loopback addresses), in a Git
repository with commits of several people, with accepted numbers and a history. Something happens,
and the nightly session runs as ever: `--dlperf-strict -n 2`, told by mail and pull request. What
comes is left in a folder per night: `mail.eml` and `comment.md` as servers here received them,
`page.html`, the page's head as a picture; `output.txt`, what the terminal showed, with `--why` the
cause at its end; `overdue.eml` where a night did not come. What has really happened stands in one
file beside, `…-answers.md`: read it last. Mail, comment and page are searched for the answers that
a reader must be able to give (`morning_nights.py`); it exits with 1 where one of them lacks one, or
blames what is innocent.

Tonight is always a real session. Earlier nights cannot be waited for: they are real sessions of
this script, a good one and one with the change where that is older, whose results files get an
earlier time, the commits of then and noise of 0.8 %, and are imported. The accepted numbers are
recorded by a session and set back likewise. Steps mostly sleep, so that numbers repeat on a busy
machine, and what slows them down is what the trainer reads: a variable, a package, an argument.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from html import unescape
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

import browser
from clusters.ports import free_ports
from clusters.ssh import SshHosts
from morning_lab import Lab, identity
from morning_nights import ACCEPTED, SCENARIOS, Known, Scenario, a_gain, no_night
from notice_servers import Forge, mail_server, web_server

WORKER: Final = 23
"""Ports and addresses are apart from those of the tests' workers."""
WIDTH: Final = 1280
_INLINE: Final = re.compile(r"</?(?:a|b|code)(?: [^>]*)?>")
_TAGS: Final = re.compile(r"<(script|style)>.*?</\1>|<[^>]*>", re.DOTALL)


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


def stage(known: Known, scenario: Scenario, folder: Path) -> tuple[str, list[str]]:
    """Have a night, and keep what comes of it in a folder; what happened, and what is not told."""
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
    if known.why and scenario is a_gain:  # which no session asks about by itself
        said = lab.why("pytorch-encoder-fp32-b16-1n1g")
        (folder / "output.txt").write_text(said, encoding="utf-8")
    shutil.copy(page, folder)
    [mail] = lab.mail.mails
    [comment] = lab.forge.comments
    (folder / "mail.eml").write_bytes(mail.as_bytes())
    (folder / "comment.md").write_text(comment["body"], encoding="utf-8")
    lab.hosts.start(*lab.hosts.names)
    text = mail.get_body(("plain",))
    texts = {
        "mail": f"{mail['subject']}\n{text.get_content() if text else ''}",
        "comment": re.sub(r"[\\`*]", "", comment["body"]),
        "page": unescape(_TAGS.sub(" ", _INLINE.sub("", page.read_text(encoding="utf-8")))),
    }
    wrong = [] if bool(code) is answer.is_red else [f"the session ended with exit code {code}"]
    for name, said in texts.items():
        wrong += [f"{name} lacks {one!r}" for one in answer.says if not re.search(one, said)]
        if name != "page":  # it has all facts of all cases
            wrong += [f"{name} has {one!r}" for one in answer.never if re.search(one, said)]
    return f"{answer.told}. The session ended with exit code {code}", wrong


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
    answers, all_wrong, began = [], [], time.monotonic()
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
            answer, wrong = stage(known, scenario, given.into / str(number))
            all_wrong += wrong
            answers.append(f"{number}. {answer}.\n")
            given.into.with_name(f"{given.into.name}-answers.md").write_text(
                "".join(answers), encoding="utf-8"
            )
            print(
                f"{number} {scenario.__name__}: {given.into / str(number)}, "
                f"{time.monotonic() - began:.0f} s",
                *wrong,
                sep="\n    ",
                flush=True,
            )
    draw([given.into / str(number) for number in chosen])
    print(f"all: {time.monotonic() - began:.0f} s, {len(all_wrong)} answers wrong")
    sys.exit(bool(all_wrong))


if __name__ == "__main__":
    main()

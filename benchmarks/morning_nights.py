"""The nights of `mornings.py`: what has happened, and what a reader must be able to say of it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from morning_lab import Lab

ACCEPTED: Final = 20
"""Days since the numbers were accepted."""
CHECKPOINTING: Final = "--checkpoint-activations"
SLOW: Final = 0.7
"""What is left of a number in a night made red."""


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

    def red_nights(self, first: int, last: int) -> None:
        """Have had slow nights likewise."""
        for days_ago in range(first, last - 1, -1):
            self.lab.night(self.good, days_ago, factor=SLOW)

    def day(self, days_ago: int) -> str:
        """The date of a night."""
        return f"{self.lab.now - timedelta(days=days_ago):%Y-%m-%d}"

    def last_good(self, days_ago: int) -> str:
        """How a text names the last good night, as an expression."""
        return rf"last good \w+ {self.day(days_ago)}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What has happened, and the answers that mail, comment and page have to give.

    ``says`` are expressions that each of them has, ``never`` such as neither mail nor comment has.
    """

    told: str
    says: tuple[str, ...]
    never: tuple[str, ...] = ()
    is_red: bool = True


def a_variable(known: Known) -> Answer:
    """Tonight alone; it stands in no commit."""
    known.lab.note("ben", 3.5, "Say whom to ask for hosts")
    known.good_nights(ACCEPTED - 1, 1)
    known.tonight += ["--dlperf-set", "*.env.LOADER_PREFETCH=1"]
    return Answer(
        "the nightly job sets the variable LOADER_PREFETCH=1 since tonight; in no commit",
        says=("LOADER_PREFETCH", "not set", known.last_good(1)),
        never=("Ben Okafor",),
    )


def a_package(known: Known) -> Answer:
    """Tonight alone; nobody has changed the suite."""
    known.lab.note("chen", 6.5, "Name the room of the hosts")
    known.good_nights(ACCEPTED - 1, 1)
    known.lab.install("0.21.0", 0.08)
    return Answer(
        "tokenizers 0.21.0 in place of 0.20.3 since tonight, which takes longer: the encoder alone",
        says=("tokenizers", r"0\.20\.3", r"0\.21\.0", known.last_good(1)),
        never=("Chen Wei",),
    )


def an_argument(known: Known) -> Answer:
    """A commit of yesterday, among others."""
    lab = known.lab
    lab.note("ben", 2.5, "Tell when the hosts are maintained")
    known.good_nights(ACCEPTED - 1, 1)
    lab.write_system("encoder", f', "{CHECKPOINTING}=full"')
    commit = lab.commit(lab.bench, "dana", 0.6, "Make room for longer sequences")
    lab.note("chen", 0.3, "Thank the new colleague")
    return Answer(
        f"Dana Novak's commit {commit} of the suite has {CHECKPOINTING}=full for the encoder, "
        "since tonight; Chen Wei's commit after it is innocent",
        says=(CHECKPOINTING, "Dana Novak: Make room for longer sequences", known.last_good(1)),
        never=("Ben Okafor",),
    )


def three_nights(known: Known) -> Answer:
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
    return Answer(
        f"Chen Wei's commit {commit} of the trainer, 'Save metrics in each step': slow since three "
        "nights before tonight; commits of the suite are innocent",
        says=("Chen Wei: Save metrics in each step", known.day(3), known.last_good(4)),
        never=("Dana Novak",),
    )


def a_gain(known: Known) -> Answer:
    """A commit to the trainer, nine days ago; the numbers were never accepted."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 9)
    lab.change_trainer("STEP_S = 0.16", "STEP_S = 0.10")
    commit = lab.commit(lab.models, "dana", 8.4, "Fuse the optimizer")
    _, fast = lab.session("-n", "2")
    for days_ago in range(8, 0, -1):
        lab.night(fast, days_ago)
    return Answer(
        f"Dana Novak's commit {commit} of the trainer, 'Fuse the optimizer': faster since eight "
        "nights before tonight; nobody has accepted it, so a later loss of as much would pass",
        says=("improved", "not accepted", known.day(8), commit[:7]),
        is_red=False,
    )


def no_host(known: Known) -> Answer:
    """Its sshd has ended, in the night after a commit."""
    known.good_nights(ACCEPTED - 1, 1)
    known.lab.note("dana", 0.4, "Thank the new colleague")
    gone = known.lab.hosts.names[-1]
    known.lab.hosts.stop(gone)
    return Answer(
        f"the sshd of {gone} has ended: cases of two nodes cannot run; Dana Novak's commit of the "
        "suite is innocent",
        says=(f"host {gone} cannot be used", known.last_good(1)),
        never=("Dana Novak", "came with"),
    )


def no_night(known: Known) -> Answer:
    """Last night is missing; two things have changed since the night before."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 2)
    lab.import_nights()
    lab.install("0.20.4", 0.0)
    lab.write_system("detector", f', "{CHECKPOINTING}=full"')
    commit = lab.commit(lab.bench, "ben", 1.6, "Have the detector fit small devices")
    return Answer(
        "last night's session never began. Since one of the two nights: Ben Okafor's commit "
        f"{commit} of the suite, {CHECKPOINTING}=full for the detector. tokenizers 0.20.4 came in "
        "the same two days and is innocent",
        says=(
            CHECKPOINTING,
            "Ben Okafor: Have the detector fit small devices",
            known.last_good(2),
            "1 night between was not measured",
        ),
    )


def a_drift(known: Known) -> Answer:
    """Over six weeks; nothing that is recorded has changed."""
    lab = known.lab
    since = 42
    _weeks_of_drift(known, since, 0.285)
    lab.shards(56)
    return Answer(
        "the folder data of the trainer has grown from 8 to 56 shards in six weeks, and each costs "
        "the loader 1 ms: nothing that is recorded has changed",
        says=("drifting since",),
        never=("new tonight",),
    )


def _weeks_of_drift(known: Known, since: int, slower: float) -> None:
    """Have had good nights, and then nights that grew slower by this part until yesterday."""
    lab = known.lab
    lab.set_back_acceptance(since + 10)
    lab.commit(lab.bench, "ana", since + 10, "Accept the numbers of the new hosts")
    for days_ago in range(since + 9, 0, -1):
        share = max(0, since - days_ago) / since
        lab.night(known.good, days_ago, factor=1 / (1 + slower * share))


# ------------------------------------------------------------------- several things at once


def a_host_beside_a_loss(known: Known) -> Answer:
    """One host is gone, and the encoder slower for another reason."""
    known.good_nights(ACCEPTED - 1, 1)
    gone = known.lab.hosts.names[-1]
    known.lab.hosts.stop(gone)
    known.lab.install("0.21.0", 0.08)
    return Answer(
        f"the sshd of {gone} has ended; beside it tokenizers 0.21.0 makes the encoder slower on "
        "the host that is left, since tonight",
        says=(f"host {gone} cannot be used", "tokenizers", "regressed", "failed"),
    )


def a_recovery(known: Known) -> Answer:
    """Three red nights, and what made them so was taken back."""
    known.good_nights(ACCEPTED - 1, 4)
    known.red_nights(3, 1)
    return Answer(
        "slow for three nights, and as good as accepted tonight: somebody has repaired it",
        says=(rf"was red since \w+ {known.day(3)}",),
        never=("regressed",),
        is_red=False,
    )


def a_gain_after_red_nights(known: Known) -> Answer:
    """Three red nights, and then a commit that makes more than good for them."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 4)
    known.red_nights(3, 1)
    lab.change_trainer("STEP_S = 0.16", "STEP_S = 0.10")
    commit = lab.commit(lab.models, "dana", 0.4, "Fuse the optimizer")
    return Answer(
        f"slow for three nights; since tonight faster than ever by Dana Novak's commit {commit} of "
        f"the trainer. Good for the last time on {known.day(4)}: the three nights were red",
        says=("improved", "tonight", commit[:7]),
        never=(known.last_good(1), known.last_good(2), known.last_good(3)),
        is_red=False,
    )


def rotating_hosts(known: Known) -> Answer:
    """Each night has run on other hosts; the loss is a variable's."""

    def moved(days_ago: int) -> Callable[[dict[str, Any]], None]:
        def change(case: dict[str, Any]) -> None:
            hosts = case["fingerprint"]["hosts"]
            case["fingerprint"]["hosts"] = [f"spare{days_ago % 5 + n}" for n in range(len(hosts))]

        return change

    for days_ago in range(ACCEPTED - 1, 0, -1):
        known.lab.night(known.good, days_ago, change=moved(days_ago))
    known.tonight += ["--dlperf-set", "*.env.LOADER_PREFETCH=1"]
    return Answer(
        "the nightly job sets the variable LOADER_PREFETCH=1 since tonight; hosts are others each "
        "night and innocent",
        says=("LOADER_PREFETCH", known.last_good(1)),
        never=("spare",),
    )


def a_drift_and_a_step(known: Known) -> Answer:
    """Six weeks of drift that still passed, and then a package."""
    _weeks_of_drift(known, 42, 0.10)
    known.lab.shards(24)
    known.lab.install("0.21.0", 0.08)
    return Answer(
        "a drift of 10 % in six weeks, by data that grow, which alone would pass; tokenizers "
        "0.21.0 came tonight and makes the encoder slower",
        says=("tokenizers", r"0\.21\.0", "tonight", known.last_good(1)),
    )


def two_causes(known: Known) -> Answer:
    """A commit for one training, a package for the other."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 1)
    lab.install("0.21.0", 0.08)
    lab.write_system("detector", f', "{CHECKPOINTING}=full"')
    commit = lab.commit(lab.bench, "ben", 0.6, "Have the detector fit small devices")
    return Answer(
        f"since tonight two things: Ben Okafor's commit {commit} of the suite, "
        f"{CHECKPOINTING}=full for the detector, and tokenizers 0.21.0 for the encoder",
        says=(CHECKPOINTING, "tokenizers", "Ben Okafor: Have the detector fit small devices"),
    )


def another_kernel(known: Known) -> Answer:
    """An administrator has changed what lies below all software, two nights ago."""

    def before(case: dict[str, Any]) -> None:
        case["fingerprint"]["software"]["kernel"] = "6.1.0-27-amd64"

    for file in (known.lab.bench / "baselines" / "local").glob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(platform.release(), "6.1.0-27-amd64"), encoding="utf-8")
    for days_ago in range(ACCEPTED - 1, 1, -1):
        known.lab.night(known.good, days_ago, change=before)
    known.lab.night(known.good, 1, factor=SLOW)
    known.lab.shards(90)
    return Answer(
        "since last night the hosts run another kernel, and all cases are slower",
        says=("kernel", r"6\.1\.0-27-amd64", known.last_good(2), known.day(1)),
        never=("tokenizers",),
    )


def a_second_fault(known: Known) -> Answer:
    """Red for three nights by a commit to the suite, and then far slower by one to the trainer."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 4)
    lab.write_system("encoder", f', "{CHECKPOINTING}=full"')
    lab.commit(lab.bench, "ben", 3.5, "Make room for longer sequences")
    _, slow = lab.session("-n", "2")
    for days_ago in (3, 2, 1):
        lab.night(slow, days_ago)
    lab.change_trainer("log.step(", 'time.sleep(0.4 * (given.model == "encoder"))\n    log.step(')
    commit = lab.commit(lab.models, "dana", 0.4, "Check each sample twice")
    return Answer(
        f"Dana Novak's commit {commit} of the trainer, 'Check each sample twice', since tonight; "
        f"the encoder had been slower for three nights by Ben Okafor's {CHECKPOINTING}=full, which "
        "explains only that",
        says=(
            "Dana Novak: Check each sample twice",
            rf"was red since \w+ {known.day(3)}",
            f"{CHECKPOINTING}.*came earlier",
            known.last_good(4),
        ),
        never=("Ben Okafor",),
    )


def half_of_it_broken(known: Known) -> Answer:
    """One training does not start any more, the other is as ever."""
    lab = known.lab
    known.good_nights(ACCEPTED - 1, 1)
    lab.write_system("detector", ', "--fused-attention"')
    commit = lab.commit(lab.bench, "chen", 0.5, "Fuse the detector's attention")
    return Answer(
        f"Chen Wei's commit {commit} of the suite passes --fused-attention to the detector, whose "
        "trainer does not know it and ends: nothing was measured of the detector",
        says=(
            "failed tonight",
            "unrecognized arguments: --fused-attention",
            "Chen Wei: Fuse the detector's attention",
        ),
        never=("regressed",),
    )


Scenario = Callable[[Known], Answer]
SCENARIOS: Final[tuple[Scenario, ...]] = (
    a_variable,
    a_package,
    an_argument,
    three_nights,
    a_gain,
    no_host,
    no_night,
    a_drift,
    a_host_beside_a_loss,
    a_recovery,
    a_gain_after_red_nights,
    rotating_hosts,
    a_drift_and_a_step,
    two_causes,
    another_kernel,
    half_of_it_broken,
    a_second_fault,
)

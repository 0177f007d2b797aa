"""What a session says is to be done: one thing, the one that helps most."""

import pytest
import results_makers as make
from explained import DELAY, SINCE_TUESDAY, TORCH, explained, moved_case
from msgspec.structs import replace
from told_sessions import case_id, passing

from pytest_dlperf.model.commits import SUITE, Commit, CommitRange
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    FoundCulprit,
    Verdict,
)
from pytest_dlperf.report.session import session_report

NEW_TORCH = replace(TORCH, came_with_it=True)
HOSTS = replace(NEW_TORCH, kind=DifferenceKind.HOSTS, name="hosts")
COMMIT = Difference(
    kind=DifferenceKind.COMMIT, name=SUITE, checkout="bench",
    last_good="9f8e7d6", now="1a2b3c4", came_with_it=True,
)  # fmt: skip
DIRTY = replace(COMMIT, now="1a2b3c4+train.py")

LOADER = CommitRange(
    checkout="bench", first="9f8e7d6", last="1a2b3c4", count=1,
    commits=(Commit(name="1a2b3c4", at=make.STARTED, author="Chen Wei", title="Save metrics"),),
)  # fmt: skip
MANY = CommitRange(checkout="models", folder="/my code", first="9f8e7d6", last="1a2b3c4")


def lost(*differences, **more):
    why = replace(SINCE_TUESDAY, differences=differences, **more)
    return moved_case(case_id(1), -9.9, why)


def broken(verdict, why=None):
    return explained(make.unmeasured_case(case_id(1), verdict, "exit code 1"), why)


def refused(why, remedy=None):
    case = make.measured_case(case_id(1), 1000.0, baseline=1000.0)
    judgement = make.judged(Verdict.NO_BASELINE, measured=1000.0)
    return make.with_judgement(case, replace(judgement, refused=why, remedy=remedy))


@pytest.mark.parametrize(
    ("case", "advice"),
    [
        (lost(DELAY, TORCH), "look first at --step-delay-ms: it came with the loss, nothing else"),
        (lost(DELAY, COMMIT), "look first at --step-delay-ms: it came with the loss"),
        (lost(COMMIT), "look first at commit of bench: it came with the loss, nothing else"),
        (lost(COMMIT, commits=(LOADER,)),
         ("look first at commit 1a2b3c4 of bench, Chen Wei: Save metrics: "
          "it came with the loss, nothing else")),
        (lost(COMMIT, commits=(replace(LOADER, count=3),)),
         f"find the commit: pytest-dlperf bisect 9f8e7d6..1a2b3c4 --case {case_id(1)}"),
        (lost(COMMIT, commits=(MANY,)),
         ("find the commit: pytest-dlperf bisect 9f8e7d6..1a2b3c4 --repository '/my code' "
          f"--case {case_id(1)}")),
        (lost(DIRTY, commits=(LOADER,)),
         ("look first at a new commit of bench and uncommitted changes in train.py: "
          "they came with the loss, nothing else")),
        (lost(DIRTY, commits=(replace(LOADER, count=3),)),
         ("put the uncommitted changes in train.py aside; then find the commit: "
          f"pytest-dlperf bisect 9f8e7d6..1a2b3c4 --case {case_id(1)}")),
        (broken(Verdict.FAILED, replace(SINCE_TUESDAY, differences=(COMMIT,), commits=(MANY,))),
         "look first at commit of bench: it came with the failure, nothing else"),
        (lost(DELAY, NEW_TORCH),
         f"find out which change it was: pytest-dlperf bisect --case {case_id(1)}"),
        (lost(HOSTS, replace(HOSTS, kind=DifferenceKind.MACHINE, name="device")),
         "look first at hosts"),
        (lost(TORCH),
         ("look at what is not recorded, such as data and inherited variables: "
          "nothing recorded came with it")),
        (lost(DELAY, found=FoundCulprit(said="the delay, 99 % sure")),
         "act on what bisect has found"),
        (moved_case(case_id(1), -9.9, None), ""),
        (moved_case(case_id(1), -0.9, SINCE_TUESDAY, Verdict.INCONCLUSIVE),
         "measure it again with more runs: --dlperf-repeats N"),
        (broken(Verdict.NO_BASELINE), "record the first number: --dlperf-create-baselines"),
        (refused("its runs differ by 15 %", "set a wider tolerance, such as 39 %"),
         "set a wider tolerance, such as 39 %"),
        (refused("its reference is inconclusive"), "its reference is inconclusive"),
        (broken(Verdict.FAILED, SINCE_TUESDAY),
         "look first at --step-delay-ms: it came with the failure, nothing else"),
        (broken(Verdict.FAILED, replace(SINCE_TUESDAY, differences=())), ""),
        (moved_case(case_id(1), 9.9, None, Verdict.IMPROVED),
         ("accept the gain, or a later loss of as much passes: "
          "--dlperf-update-baselines --dlperf-reason 'TEXT'")),
    ],
)  # fmt: skip
def test_a_session_says_what_to_do(case, advice):
    said = str(session_report(make.session(case, *passing(2))).advice)
    assert said == (f"to do: {advice}" if advice else "")


def test_the_command_that_tries_changes_apart_names_what_is_not_the_main_metric():
    why = replace(SINCE_TUESDAY, differences=(DELAY, NEW_TORCH))
    case = make.measured_case(case_id(1), 1000.0, more={make.MEMORY: [106.0]})
    grown = make.judged(
        Verdict.REGRESSED, metric=make.MEMORY, measured=106, accepted=100, difference_percent=6.0
    )
    case = replace(make.with_judgement(case, grown), explanations={make.MEMORY.name: why})
    assert str(session_report(make.session(case, *passing(2))).advice).endswith(
        f"pytest-dlperf bisect --case {case_id(1)} --metric {make.MEMORY.name}"
    )


def test_a_host_that_cannot_be_used_comes_first():
    faults = {"gpu07": ("GPU 3 is lost",), "gpu03": ("no answer",)}
    results = replace(make.session(*passing(2)), unfit_hosts=faults)
    assert str(session_report(results).advice) == "to do: look first at host gpu03 and 1 more"


def test_a_loss_beside_a_lost_host_is_acted_on_as_well():
    """What a host that is out of use has measured nothing of is no reason of a loss elsewhere."""
    session = make.session(lost(DELAY), broken(Verdict.FAILED, None), *passing(2))
    results = replace(session, unfit_hosts={"gpu03": ("no answer",)})
    assert str(session_report(results).advice) == (
        "to do: look first at host gpu03; then look first at --step-delay-ms: "
        f"it came with the loss, nothing else (in {case_id(1)})"
    )


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ((NEW_TORCH,), "look first at software torch: it came with the loss, nothing else"),
        (
            (NEW_TORCH, HOSTS),
            f"find out which change it was: pytest-dlperf bisect --case {case_id(1)}",
        ),
    ],
    ids=["on its old hosts", "on other hosts"],
)
def test_hosts_are_innocent_where_another_case_lost_as_much_without_them(other, advice):
    also = moved_case(case_id(2), -9.8, replace(SINCE_TUESDAY, differences=other))
    found = session_report(make.session(lost(NEW_TORCH, HOSTS), also))
    assert str(found.advice) == f"to do: {advice}"


def test_a_session_in_order_asks_for_nothing():
    assert not session_report(make.session(*passing(2))).advice

"""Since when a number is as it is: found in the nights of the history, or not claimed."""

import random
from datetime import timedelta

import pytest
from histories import CASE, METRIC, add, case_result, measurement, night, session
from msgspec.structs import replace
from results_makers import judged

from pytest_dlperf.history.series import Series
from pytest_dlperf.history.since import CurrentSession, Target, explain
from pytest_dlperf.history.store import History
from pytest_dlperf.history.trends import level_began
from pytest_dlperf.model.baseline import Acceptance, AcceptedSession, Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.commits import Checkout, Commit
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.report.words import onset

GOOD, BAD = 400.0, 380.0
SERIES = Series.of(Case.from_id(CASE), METRIC, cluster="local", estimator="steady")


def onset_of(found, tonight):
    return {label: str(text) for label, text in onset(found, tonight)}


def verdict_on(level, verdict):
    """A judgement on tonight's level, which was held against the good one."""
    percent = 100 * (level / GOOD - 1)
    judgement = judged(verdict, metric=METRIC, accepted=GOOD, difference_percent=percent)
    return replace(judgement, measured=level)


REGRESSED = verdict_on(BAD, Verdict.REGRESSED)
FAILED = Judgement(metric=METRIC, verdict=Verdict.FAILED, reason="exit code 7")
SKIPPED = Judgement(metric=METRIC, verdict=Verdict.SKIPPED, reason="host-3 is gone")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "history.sqlite3"


def kept(file, levels, **more):
    """Put nights into the history, by number; ``None`` is one in which all runs failed."""
    add(file, *(a_night(number, level, **more) for number, level in levels.items()))


def a_night(number, level, **more):
    runs = [level] * 3 if level is not None else [None] * 3
    verdict = Verdict.PASS if level is not None else Verdict.FAILED
    environment = {"commit": f"c{number}", "ci_run": f"https://ci.example/{number}"}
    fields = {"environment": environment, **more}
    return session(number, [case_result(CASE, runs, verdict=verdict)], **fields)


def accepted(number, level=GOOD, **more):
    return Baseline(
        metric="throughput",
        unit=METRIC.unit,
        better=Better.HIGHER,
        estimator=Estimator.STEADY,
        accepted=level,
        acceptance=Acceptance(at=night(number), commit="of-acceptance"),
        **more,
    )


def explained(  # noqa: PLR0913 - what differs between tests, by name
    file,
    number,
    judgement=REGRESSED,
    *,
    baseline=None,
    fingerprint=None,
    started=None,
    checkout=None,
):
    """Explain a judgement of that night."""
    measured = measurement(CASE, [judgement.measured or BAD] * 3)
    target = Target(
        series=SERIES,
        judgement=judgement,
        measurement=replace(measured, fingerprint=fingerprint or measured.fingerprint),
        baseline=baseline,
    )
    at = started or night(number)
    tonight = CurrentSession(
        session=f"night-{number}", started=at, commit="tonights", checkout=checkout or Checkout()
    )
    if file is None:
        return explain(None, target, tonight)
    with History.read(file) as history:
        return explain(history, target, tonight)


def since(explanation):
    nights = explanation.since, explanation.last_good
    first, good = (None if one is None else one.at for one in nights)
    return first, good


# --------------------------------------------------------------------- when a number moved


def test_a_loss_is_dated_with_the_commits_of_both_nights(file):
    kept(file, {0: GOOD, 1: GOOD, 2: BAD, 3: BAD})
    found = explained(file, 4, baseline=accepted(0))
    assert (found.since.at, found.since.commit, found.since.median) == (night(2), "c2", BAD)
    assert found.last_good.commit == "c1"
    assert found.last_good.ci_run == "https://ci.example/1"
    assert (found.days, found.days_at_level) == (3, 3)
    assert ("suite", "c1", "tonights") in {
        (one.name, one.last_good, one.now) for one in found.differences
    }


def test_what_is_new_tonight_has_tonights_commit(file):
    kept(file, {0: GOOD, 1: GOOD})
    found = explained(file, 2, baseline=accepted(0))
    assert since(found) == (night(2), night(1))
    assert found.since.commit == "tonights"
    assert (found.days, found.days_at_level) == (1, 1)


@pytest.mark.parametrize(
    ("levels", "number", "accepted_in", "judgement", "expected"),
    [
        ({0: GOOD, 1: BAD}, 1, 0, REGRESSED, (1, 0)),  # this session itself is no earlier one
        ({0: GOOD, 1: 440.0, 2: 441.0}, 3, 0, verdict_on(440.0, Verdict.IMPROVED), (1, 0)),
        ({0: BAD, 1: BAD, 2: GOOD, 3: BAD}, 4, 2, REGRESSED, (3, 2)),  # what was before is over
        ({1: BAD, 7: BAD}, 8, 0, REGRESSED, (1, 0)),  # a history that begins bad
        ({5: BAD, 6: BAD}, 7, None, REGRESSED, (5, None)),  # none is known that was good
        ({0: GOOD, 1: GOOD - 1}, 2, 0, verdict_on(GOOD - 2, Verdict.INCONCLUSIVE), (None, 1)),
        ({0: GOOD, 1: GOOD}, 2, 400, REGRESSED, (2, 1)),  # accepted by a clock ahead
        ({0: GOOD, 1: GOOD}, 2, 400, FAILED, (2, 1)),
    ],
)
def test_a_number_is_dated(file, levels, number, accepted_in, judgement, expected):  # noqa: PLR0913, PLR0917
    kept(file, levels)
    baseline = None if accepted_in is None else accepted(accepted_in)
    dates = tuple(None if at is None else night(at) for at in expected)
    assert since(explained(file, number, judgement, baseline=baseline)) == dates


def test_a_session_added_to_the_baseline_was_good(file):
    kept(file, {0: GOOD, 1: BAD, 2: BAD, 3: BAD})
    added = accepted(0, sessions=(AcceptedSession(at=night(2), runs=(399.0, 401.0)),))
    assert since(explained(file, 4, baseline=added)) == (night(3), night(2))


def test_nights_count_by_the_days_that_the_reader_sees(file):
    before, tonight = "2026-11-05T23:30:00+00:00", "2026-11-07T00:30:00+01:00"
    with History.open(file) as history:
        for number in range(-10, 0):
            at = (parse_time(before) + timedelta(days=number + 1)).isoformat()
            history.add(a_night(number, GOOD, started=at))
    found = explained(file, 0, baseline=accepted(-60), started=tonight)
    assert since(found) == (tonight, before)
    assert found.days == 1
    assert onset_of(found, tonight)["last good"].endswith(", 1 day ago")


@pytest.mark.parametrize(("there", "level"), [("steady", GOOD * 1.003), ("falling", GOOD)])
def test_a_loss_beside_a_control_arm_alone_is_not_dated(file, there, level):
    """The number itself is no loss: of other nights' control arms the history knows nothing."""
    kept(file, {n: GOOD * (1 - 0.001 * n * (there == "falling")) for n in range(1, 60)})
    found = explained(file, 60, verdict_on(level, Verdict.REGRESSED), baseline=accepted(0))
    assert since(found) == (None, night(0))


@pytest.mark.parametrize("has_history", [True, False])
def test_without_earlier_nights_the_accepted_number_was_the_last_good(file, has_history):
    kept(file, {9: GOOD}, cluster="another")
    found = explained(file if has_history else None, 7, baseline=accepted(2))
    assert since(found) == (None, night(2))  # nobody knows what was between
    assert (found.last_good.commit, found.last_good.median) == ("of-acceptance", GOOD)
    assert found.days == 5
    last_night = explained(file if has_history else None, 3, baseline=accepted(2))
    assert since(last_night) == (night(3), night(2))


def test_nights_on_another_machine_or_with_broken_runs_say_nothing(file):
    kept(file, {0: GOOD, 1: BAD, 2: None, 3: BAD})
    other = Fingerprint(machine={"device": "B200"})
    found = explained(file, 4, baseline=accepted(0), fingerprint=other)
    assert since(found) == (night(4), night(0))
    found = explained(file, 4, baseline=accepted(0))
    assert since(found) == (night(1), night(0))
    assert found.days_at_level == 3


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, (night(4), night(3))), ({"environment": {"commit": "same"}}, (night(1), night(0)))],
    ids=["another commit", "the same commit"],
)
def test_a_green_session_at_another_commit_ends_a_loss(file, environment, expected):
    kept(file, {0: GOOD, 1: BAD, 2: BAD, 3: GOOD}, **environment)
    assert since(explained(file, 4, baseline=accepted(0))) == expected


def test_sessions_of_one_day_count_once_and_may_lie_on_both_sides(file):
    kept(file, {0: GOOD, 1: GOOD})
    with History.open(file) as history:
        for hour, level in ((5, GOOD), (9, BAD), (12, BAD)):
            at = night(1).replace("T02", f"T{hour:02}")
            history.add(a_night(1, level, session=f"at-{hour}", started=at))
    found = explained(file, 2, baseline=accepted(0))
    assert since(found) == (night(1).replace("T02", "T09"), night(1).replace("T02", "T05"))
    assert (found.days, found.days_at_level) == (1, 2)


def test_imported_results_and_logs_have_no_fingerprints(file):
    with History.open(file) as history:
        for number, level in enumerate((GOOD, GOOD - 0.1, BAD)):
            result = case_result(CASE, [level, level + 0.2], logs_digest=f"{number}")
            history.add(session(number, [result]))
    found = explained(file, 3)
    assert since(found) == (night(2), night(1))


def red(number, level, verdict, **more):
    """A night whose session was red; ``more`` is of its fingerprint."""
    result = case_result(CASE, [level] * 3, verdict=verdict)
    fingerprint = Fingerprint(machine={"device": "H200"}, **more)
    measured = result.measurement and replace(result.measurement, fingerprint=fingerprint)
    environment = {"commit": f"c{number}"}
    return session(number, [replace(result, measurement=measured)], environment=environment)


@pytest.mark.parametrize(
    ("level", "verdict"),
    [(440.0, Verdict.IMPROVED), (320.0, Verdict.REGRESSED)],
    ids=["a gain", "a further loss"],
)
def test_the_last_good_night_lies_before_those_that_were_red(file, level, verdict):
    kept(file, {0: GOOD, 1: GOOD})
    add(file, *(red(number, BAD, Verdict.REGRESSED) for number in (2, 3)))
    found = explained(file, 4, verdict_on(level, verdict), baseline=accepted(0))
    assert since(found) == (night(4), night(1))
    assert (found.red_since.at, found.days) == (night(2), 3)
    assert onset_of(found, night(4)) == {
        "since": "this session, Monday 2026-01-05, commit tonights",
        "red since": "Saturday 2026-01-03",
        "last good": "Friday 2026-01-02, commit c1, 3 days ago",
    }


def test_the_commits_of_the_suite_that_came_with_it_are_listed(file):
    kept(file, {0: GOOD, 1: GOOD, 2: BAD})
    names = ("tonights", "c2", "unknown", "c1", "c0")
    commits = tuple(Commit(name=name, at=night(0), author="Ana", title=name) for name in names)
    found = explained(file, 3, baseline=accepted(0), checkout=Checkout(commits=commits))
    (listed,) = found.commits
    assert (listed.checkout, [one.name for one in listed.commits]) == ("suite", ["c2", "unknown"])


def blamed(file, judgement):
    """In the fifth night: when it began, what came with it, the commits listed."""
    names = ("tonights", "between", "c3", "c2", "c1", "c0")
    commits = tuple(Commit(name=name, at=night(0), author="Ana", title=name) for name in names)
    found = explained(
        file,
        4,
        judgement,
        baseline=accepted(0),
        fingerprint=Fingerprint(machine={"device": "H200"}, software=NEW),
        checkout=Checkout(commits=commits),
    )
    return (
        found.began.at if found.began is not None else None,
        [one.name for one in found.differences if one.came_with_it],
        [one.name for these in found.commits for one in these.commits],
    )


OLD = {"torch": "2.9", "nccl": "2.27"}
SLOW = {"torch": "2.10", "nccl": "2.27"}
NEW = {"torch": "2.10", "nccl": "2.28"}


@pytest.mark.parametrize(
    ("level", "verdict"),
    [(320.0, Verdict.REGRESSED), (440.0, Verdict.IMPROVED), (None, Verdict.FAILED)],
)
def test_of_a_second_fault_all_since_the_last_good_night_are_suspects(file, level, verdict):
    add(file, *(red(number, GOOD, Verdict.PASS, software=OLD) for number in (0, 1)))
    add(file, *(red(number, BAD, Verdict.REGRESSED, software=SLOW) for number in (2, 3)))
    judgement = FAILED if level is None else verdict_on(level, verdict)
    began, came, commits = blamed(file, judgement)
    assert (began, sorted(came)) == (night(2), ["nccl", "suite", "torch"])
    assert commits == ["tonights", "between", "c3", "c2"]


def test_what_changed_after_a_loss_has_not_come_with_it(file):
    add(file, *(red(number, GOOD, Verdict.PASS, software=OLD) for number in (0, 1)))
    add(file, *(red(number, BAD, Verdict.REGRESSED, software=SLOW) for number in (2, 3)))
    began, came, commits = blamed(file, REGRESSED)
    assert (began, sorted(came), commits) == (night(2), ["suite", "torch"], ["c2"])


def test_what_fails_after_red_nights_was_good_before_them(file):
    kept(file, {0: GOOD})
    add(file, red(1, BAD, Verdict.REGRESSED))
    for why in (FAILED, SKIPPED):
        found = explained(file, 2, why, baseline=accepted(0))
        assert since(found) == (night(2), night(0))
        assert found.red_since.at == night(1)


def test_a_loss_that_was_accepted_was_good(file):
    kept(file, {0: GOOD})
    add(file, red(1, BAD, Verdict.REGRESSED))
    found = explained(file, 2, FAILED, baseline=accepted(1, BAD))
    assert since(found) == (night(2), night(1))
    assert found.red_since is None


def test_what_passes_again_was_red(file):
    kept(file, {0: GOOD})
    add(file, red(1, None, Verdict.HUNG), red(2, BAD, Verdict.REGRESSED))
    again = verdict_on(GOOD, Verdict.PASS)
    found = explained(file, 3, again, baseline=accepted(0))
    assert found is not None
    assert onset_of(found, night(3)) == {"red since": "Friday 2026-01-02"}
    kept(file, {3: GOOD})
    assert explained(file, 4, again, baseline=accepted(0)) is None


def test_what_passes_and_what_has_no_baseline_is_not_explained():
    for verdict in (Verdict.PASS, Verdict.NO_BASELINE):
        judgement = verdict_on(GOOD, verdict)
        assert explained(None, 1, judgement, baseline=accepted(0)) is None


# --------------------------------------------------------------------- what broke


def test_a_failure_is_dated_from_the_last_whole_night(file):
    kept(file, {0: GOOD, 1: BAD, 2: None, 3: None})
    found = explained(file, 4, FAILED, baseline=accepted(0))
    assert since(found) == (night(2), night(1))
    assert (found.since.commit, found.since.median, found.days_at_level) == ("c2", None, 3)


def test_what_could_not_be_measured_is_dated_by_the_nights_that_tried(file):
    """A session that did not select the case has no row of it, and says nothing."""
    kept(file, {0: GOOD})
    unmeasured = replace(
        case_result(CASE, [GOOD]), measurement=None, judgements={"throughput": SKIPPED}
    )
    with History.open(file) as history:
        history.add(session(1, []))
        history.add(session(2, [unmeasured]))
    found = explained(file, 3, SKIPPED)
    assert since(found) == (night(2), night(0))
    assert (found.days, found.days_at_level) == (3, 2)


def test_cases_that_are_always_skipped_do_not_fill_the_history(file):
    skipped = replace(
        case_result(CASE, [GOOD]), measurement=None, judgements={"throughput": SKIPPED}
    )
    with History.open(file) as history:
        history.add(session(0, [skipped]))
        assert history.tuples("SELECT count(*) FROM measurements", tuple) == [(0,)]
        history.add(session(1, {CASE: [GOOD]}))
        history.add(session(2, [skipped]))
        query = "SELECT median, verdict FROM measurements ORDER BY began"
        assert history.tuples(query, tuple) == [(GOOD, "pass"), (None, "skipped")]


def test_what_never_ran_here_is_not_explained(file):
    kept(file, {0: None})
    assert explained(file, 1, SKIPPED, baseline=accepted(0)) is None
    assert explained(None, 1, FAILED) is None
    assert since(explained(file, 1, FAILED)) == (night(0), None)


# --------------------------------------------------------------------- how well nights are dated


def drawn(kind, loss, noise, draw):
    """Nights before tonight, and the index of the first of the loss."""

    def nights(level, count):
        return [level * draw.gauss(1, noise) for _ in range(count)]

    good, bad = GOOD, GOOD * (1 - loss)
    before, after = nights(good, draw.randint(5, 30)), nights(bad, draw.randint(0, 12))
    if kind == "outlier before":
        before[draw.randrange(len(before) - 3)] = bad
    elif kind == "outlier within":
        after = [*nights(bad, 2), *nights(good, 1), *nights(bad, 2), *after]
    elif kind == "came back":
        before += nights(bad, draw.randint(2, 12)) + nights(good, draw.randint(3, 10))
    return [*before, *after], len(before)


@pytest.mark.parametrize("kind", ["one step", "outlier before", "outlier within", "came back"])
@pytest.mark.parametrize(
    ("loss", "noise", "right"), [(0.10, 0.01, 0.98), (0.05, 0.01, 0.95), (0.02, 0.003, 0.98)]
)
def test_simulated_losses_are_dated_to_the_night(kind, loss, noise, right):
    draw = random.Random(f"{kind} {loss}")  # noqa: S311 - the same nights every time
    hits, count = 0, 300
    for _ in range(count):
        values, first = drawn(kind, loss, noise, draw)
        tonight = min(GOOD * (1 - loss) * draw.gauss(1, noise), GOOD * (1 - loss / 2))
        hits += level_began(values, reference=GOOD, now=tonight) == first
    assert hits >= right * count


def test_of_flapping_nights_the_last_ones_are_told():
    flapping = [GOOD] * 20 + [BAD, GOOD] * 6
    assert level_began(flapping, reference=GOOD, now=BAD) == len(flapping)
    assert level_began([*flapping, BAD, BAD], reference=GOOD, now=BAD) >= 20

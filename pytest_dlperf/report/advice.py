"""What to do after a session: the one thing that helps most."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from shlex import quote
from typing import Final

from pytest_dlperf.model.commits import CommitRange
from pytest_dlperf.model.judgement import Difference, DifferenceKind, Explanation, Verdict
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.model.results import Results
from pytest_dlperf.report import words
from pytest_dlperf.report.entries import Entry
from pytest_dlperf.report.facts import ACCEPT
from pytest_dlperf.report.text import NOTHING, Text, cases_named, code, phrase, strong, word

_OF_LAUNCH: Final = (DifferenceKind.COMMAND, DifferenceKind.ENVIRONMENT, DifferenceKind.LAUNCH)
_NOT_SETTABLE: Final = (DifferenceKind.MACHINE, DifferenceKind.HOSTS)
_UNRECORDED: Final = (
    "look at what is not recorded, such as data and inherited variables: "
    "nothing recorded came with it"
)
_BY_STATUS: Final = {
    Verdict.LOST: "run it again: a worker was lost",
    Verdict.NO_BASELINE: "record the first number: {}",
    Verdict.INCONCLUSIVE: "measure it again with more runs: {}",
    Verdict.NOT_STARTED: "look at its hosts: a probe that it needs broke there",
    Verdict.ENVIRONMENT_SHIFT: "look at hosts and drivers: the accepted software is slower too",
}
_OPTIONS: Final = {
    Verdict.NO_BASELINE: "--dlperf-create-baselines",
    Verdict.INCONCLUSIVE: "--dlperf-repeats N",
}


def advice_of(results: Results, bad: Sequence[Entry], gains: Sequence[Entry]) -> Text:
    """Say what to do first; ``bad`` entries have the most urgent one first."""
    hosts = sorted(results.unfit_hosts)
    if hosts:
        # No host that is out of use makes the others slower.
        losses = [entry for entry in bad if entry.status is Verdict.REGRESSED]
        loss = _of_entries(losses, more=len(bad) > 1)
        others = phrase(" and {} more", len(hosts) - 1) if len(hosts) > 1 else NOTHING
        then = phrase("; then {}", loss) if loss else NOTHING
        found = phrase("look first at host {}{}{}", code(hosts[0]), others, then)
    elif bad:
        found = _of_entries(bad)
    elif gains:
        found = phrase("accept the gain, or a later loss of as much passes: {}", code(ACCEPT))
    else:
        found = NOTHING
    return phrase("{}: {}", strong("to do"), found) if found else NOTHING


def _of_entries(entries: Sequence[Entry], *, more: bool = False) -> Text:
    """Say what to do of the first of which that can be said, and which it is of several."""
    told = ((_of_entry(entry), entry) for entry in entries)
    found, entry = next(filter(itemgetter(0), told), (NOTHING, None))
    if entry is None or not (more or len(entries) > 1):
        return found
    ids = [result.case.id for result in entry.cases]
    return phrase("{} (in {})", found, cases_named(ids, 1))


def _of_entry(entry: Entry) -> Text:
    explanation, status = entry.explanation, entry.status
    if status in _BY_STATUS:
        judgement, option = entry.judgement, _OPTIONS.get(status)
        if judgement is not None and judgement.refused is not None:
            return phrase("{}", judgement.remedy or judgement.refused)
        return phrase(_BY_STATUS[status], *([code(option)] if option else []))
    return _of_explanation(explanation, entry) if explanation is not None else NOTHING


def _of_explanation(explanation: Explanation, entry: Entry) -> Text:
    if explanation.found is not None:
        return phrase("act on what bisect has found")
    blamed = [one for one in explanation.companions if one.is_blamed]
    if blamed:
        resources = dict.fromkeys(one.resource for one in blamed)
        said = word(" and ".join(resources))
        return phrase("look first at the {} of its hosts: probes found it worse", said)
    came = [it for it in entry.differences if it.came_with_it]
    if came:
        return _of_suspects(came, explanation, entry)
    if entry.status is Verdict.REGRESSED:
        return phrase(_UNRECORDED)
    measurement = entry.cases[0].measurement
    has_log = measurement is not None and any(run.log for run in measurement.broken_runs)
    return phrase("read how the log ends") if has_log else NOTHING


def _of_suspects(came: Sequence[Difference], explanation: Explanation, entry: Entry) -> Text:
    is_launch = any(one.kind in _OF_LAUNCH for one in came)
    # A commit that brought an argument is the same suspect.
    suspects = [one for one in came if not (is_launch and one.is_suite)]
    what = phrase("{}", code(words.difference_name(suspects[0])))
    if len(suspects) == 1:
        it = "it"
        if suspects[0].kind is DifferenceKind.COMMIT:
            among = next(iter(explanation.commits), None)
            changed = (suspects[0].now or "").partition("+")[2]
            if among is not None and among.count != 1 and entry.status is Verdict.REGRESSED:
                return _commit_search(among, changed, entry)
            if changed:
                what, it = phrase("{}", words.news(suspects[0])), "they"
            elif among is not None and among.count == 1:
                what = phrase("commit {}", next(words.commit_texts(explanation)))
        said = phrase("look first at {}: {} {}", what, it, word(words.came_with(entry.judgement)))
        return phrase("{}, nothing else", said) if len(came) == 1 else said
    is_settable = any(one.kind not in _NOT_SETTABLE for one in suspects)
    if entry.status is Verdict.REGRESSED and is_settable:
        search = _about(entry, "pytest-dlperf bisect --case")
        return phrase("find out which change it was: {}", code(search))
    return phrase("look first at {}", what)


def _commit_search(among: CommitRange, changed: str, entry: Entry) -> Text:
    repository = f" --repository {quote(among.folder)}" if among.folder else ""
    command = f"pytest-dlperf bisect {among.first}..{among.last}{repository} --case"
    search = phrase("find the commit: {}", code(_about(entry, command)))
    # It searches commits alone.
    aside = phrase("put the uncommitted changes in {} aside; then {}", changed, search)
    return aside if changed else search


def _about(entry: Entry, command: str) -> str:
    """Have a command ask about the case and its metric; a ratio has none of its own."""
    result, known = entry.cases[0], entry.known
    command = f"{command} {result.case.id}"
    name = (known.metric.ratio_of or known.metric.name) if known is not None else ""
    is_main = name in ("", next(iter(result.metrics()))) and MEMBER not in name
    return command if is_main else f"{command} --metric {name}"

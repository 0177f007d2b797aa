"""The life of a baseline through the command line: created, kept, changed, extended."""

import difflib
import math
from datetime import datetime, timedelta

import pytest
import yaml
from histories import case_result, session
from nights import Nights

from pytest_dlperf.history.store import History

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

CREATE, UPDATE, EXTEND = (f"--dlperf-{word}-baselines" for word in ("create", "update", "extend"))
WORSE = "*not accepted: a worse number needs --dlperf-reason*"


def entries(nights):
    """What is accepted by topology and metric; a bare number is the accepted one."""
    return {
        topology: {
            name: said if isinstance(said, dict) else {"accepted": said}
            for name, said in entry.items()
        }
        for topology, entry in yaml.safe_load(nights.text)["entries"]["fp32-b4"].items()
    }


def levels(nights):
    """The accepted throughputs by topology."""
    return {name: entry["throughput"]["accepted"] for name, entry in entries(nights).items()}


def changed_lines(before, after):
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_the_life_of_an_accepted_number(suite):
    nights = Nights(suite)
    first = nights.usual("first")
    slow = nights.usual("slow", of_1n1g=0.9, of_1n2g=0.9)

    # Missing fails; recorded passes.
    assert suite.run(*first).ret == 1
    assert suite.run(*first, CREATE).ret == 0
    accepted = nights.text

    # Slower fails, says how it would be accepted, and leaves the file alone.
    regressed = suite.run(*slow)
    assert regressed.ret == 1
    regressed.stdout.fnmatch_lines(["*accept*--dlperf-update-baselines --dlperf-reason*"])
    assert nights.text == accepted

    # Lower numbers need a reason.
    refused = suite.run(*slow, UPDATE)
    assert refused.ret == 1
    refused.stdout.fnmatch_lines([WORSE])
    refused.stdout.no_fnmatch_line("*there was no number to accept*")
    assert nights.text == accepted

    # With one they are accepted, and the reason stays.
    updated = suite.run(*slow, UPDATE, "--dlperf-reason", "NCCL needs more memory")
    assert updated.ret == 0
    updated.stdout.fnmatch_lines(
        [
            "tiny-mlp-fp32-b4-1n1g *samples/s *-* %  *  NCCL needs more memory",
            "tiny-mlp-fp32-b4-1n2g *samples/s *-* %  *  NCCL needs more memory",
        ]
    )
    assert entries(nights)["1n1g"]["acceptance"]["reason"] == "NCCL needs more memory"

    # What was accepted is what the gate holds nights against from now on.
    assert suite.run(*slow).ret == 0
    again = suite.run(*first)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["*improved*"])


def test_update_records_what_is_new_and_leaves_the_rest(suite):
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE, "-k", "tiny and 1n1g")
    before = nights.text

    assert suite.run(*nights.usual("first"), UPDATE).ret == 0

    assert set(entries(nights)) == {"1n1g", "1n2g"}
    assert not [line for line in changed_lines(before, nights.text) if line.startswith("-")]


def rolling(nights, *, of_1n1g=1.0):
    """Accept a usual night, with five more nights behind it at so many times the level."""
    later = [nights.numbers(f"later-{number}", of_1n1g=of_1n1g) for number in range(5)]
    nights.accept(nights.numbers("first"), *later)


def test_extended_baselines_see_more(suite):
    nights = Nights(suite)
    numbers = [nights.numbers(name) for name in ("first", "second", "third")]
    nights.accept(*numbers)
    accepted = levels(nights)

    few, results = suite.judge(*nights.usual("fourth"), EXTEND, cluster="local")

    assert few.ret == 0
    before = results["cases"][0]["judgements"]["throughput"]["decision"]
    few.stdout.fnmatch_lines(["added this session's runs to the baselines of 2 cases in *"])
    assert levels(nights) == accepted
    assert [len(entry["throughput"]["sessions"]) for entry in entries(nights).values()] == [3, 3]

    usual, results = suite.judge(*nights.usual("usual"), cluster="local")
    assert usual.ret == 0
    for case in results["cases"]:
        seen = case["judgements"]["throughput"]["decision"]["min_detectable_percent"]
        assert 2 <= seen < before["min_detectable_percent"]
        assert [run["run"] for run in case["measurement"]["runs"]] == [1, 2, 3, 4, 5]


def test_the_same_runs_count_once(suite):
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("first"))
    second = nights.usual("second")
    assert suite.run(*second, EXTEND).ret == 0
    assert len(entries(nights)["1n1g"]["throughput"]["sessions"]) == 1
    before = nights.text

    again = suite.run(*second, EXTEND)

    assert again.ret == 0
    again.stdout.fnmatch_lines(["the baseline of *: these very runs have been added before"])
    assert nights.text == before


def test_who_improves_is_told_how_to_accept_it(suite):
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("accepted"))
    begun = [datetime.now().astimezone() - timedelta(days=days) for days in (3, 2, 1)]
    with History.open(suite.path / ".dlperf" / "history.sqlite3") as history:
        for number, (at, level) in enumerate(zip(begun, (400.0, 600.0, 601.0), strict=True)):
            night = [case_result("tiny-mlp-fp32-b4-1n1g", [level] * 3, logs_digest=f"{number}")]
            history.add(session(number, night, started=at.isoformat(timespec="seconds")))

    better = suite.run(*nights.usual("fast", of_1n1g=1.5))
    usual = suite.run(*nights.usual("usual"))

    assert (better.ret, usual.ret) == (0, 0)
    better.stdout.fnmatch_lines(
        [
            f"the only case got faster since {begun[1]:%A}, *",
            "to do: accept the gain, *",
        ]
    )
    usual.stdout.no_fnmatch_line("to do: *")


def test_a_speedup_over_a_broken_device_is_not_accepted(suite):
    nights = Nights(suite)
    suite.run(*nights.usual("first"), CREATE)
    before = nights.text
    faster = nights.usual("faster", of_1n2g=1.2)
    log = suite.path / "nights" / "faster" / "1n1g" / "mlp_b4_fp32_2.log"
    log.write_text(log.read_text(encoding="utf-8")[:200], encoding="utf-8")

    result = suite.run(*faster, UPDATE)

    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["the baseline of tiny-mlp-fp32-b4-1n2g stays as it is: a part of the case did not *"]
    )
    assert nights.text == before


def test_the_results_file_tells_what_was_accepted(suite):
    nights = Nights(suite, ["1n1g"])
    suite.run(*nights.usual("first"), CREATE)

    _, results = suite.judge(*nights.usual("fast", of_1n1g=1.2), UPDATE, cluster="local")

    (change,) = results["baseline_changes"]
    assert change["case_id"] == "tiny-mlp-fp32-b4-1n1g"
    assert change["old"] == pytest.approx(400, rel=0.02)
    assert change["new"] == pytest.approx(480, rel=0.02)
    (case,) = results["cases"]
    assert case["metrics"]["throughput"]["verdict"] == "improved"
    assert case["judgements"]["throughput"]["recorded"] is True


UNCHANGED = {
    "better, within its tolerance": ({"of_1n1g": 1.03}, [UPDATE], 0, None),
    "too few to be added": (
        {"runs": 3},
        [EXTEND],
        0,
        "*stays as it is: it has 3 runs, and 4 are needed to be added",
    ),
}


@pytest.mark.parametrize(("night", "option", "code", "told"), UNCHANGED.values(), ids=UNCHANGED)
def test_a_night_leaves_the_accepted_number_as_it_is(suite, night, option, code, told):
    nights = Nights(suite, ["1n1g"])
    nights.accept(nights.numbers("first"))
    before = nights.text

    result = suite.run(*nights.usual("tonight", **night), *option)

    assert result.ret == code
    result.stdout.fnmatch_lines([told] if told else [])
    assert nights.text == before


def test_a_number_below_later_nights_needs_a_reason(suite):
    """It is above the accepted number, and below what there has been since."""
    nights = Nights(suite, ["1n1g"])
    rolling(nights, of_1n1g=1.07)
    before = nights.text

    result = suite.run(*nights.usual("tonight", runs=9, of_1n1g=1.01), UPDATE)

    assert result.ret == 1
    result.stdout.fnmatch_lines([WORSE])
    assert nights.text == before


@pytest.mark.parametrize(("level", "code"), [(0.8, 1), (1.1, 0)], ids=["worse", "better"])
def test_a_changed_night_leaves_how_far_it_differs(suite, level, code):
    nights = Nights(suite, ["1n1g"])
    rolling(nights)
    accepted, added = levels(nights), entries(nights)["1n1g"]["throughput"]["sessions"]

    result = suite.run(*nights.usual("changed", of_1n1g=level), EXTEND)

    assert result.ret == code
    entry = entries(nights)["1n1g"]["throughput"]
    assert (levels(nights), entry["sessions"]) == (accepted, added)
    assert entry["spread"]["changed"][0] == pytest.approx(-100 * math.log(level), abs=3)
    # The next one that passes makes it one of the losses.
    assert suite.run(*nights.usual("usual"), EXTEND).ret == 0
    spread = entries(nights)["1n1g"]["throughput"]["spread"]
    assert spread["losses"][-2] == entry["spread"]["changed"]
    assert "changed" not in spread

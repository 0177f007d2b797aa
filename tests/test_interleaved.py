"""What is tested and the accepted software run interleaved on the same hosts, A B B A A B B A."""

import multiprocessing
import shlex
import time
from pathlib import Path

import pytest
from msgspec import convert, to_builtins
from trainers import CASES, SYSTEM, TinySystem, measurer, slower_by

from pytest_dlperf.config.settings import Setting
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import SshLauncher
from pytest_dlperf.logs.tree import CONTROL_ARM, LogSource, index_logs
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT, throughput
from pytest_dlperf.plugin.measuring import Measuring
from pytest_dlperf.report.live import progress_line

HERE = ("localhost",)
ONE_DEVICE, TWO_DEVICES, TWO_NODES = map(Case.from_id, CASES)


def arms(tiny):
    """The order in which runs were started: A is what is tested, B is the accepted software."""
    return "".join("A" if line.split()[3] == "1" else "B" for line in tiny.slower())


def numbered(measurement):
    return [run.run for run in measurement.runs]


def test_the_order_turns_round_with_each_pair(suite):
    """Whatever gets slower during the runs then weighs on both alike."""
    tiny = TinySystem(suite)
    shown = []
    interleaved = measurer(suite, show=shown.append).interleaved(
        ONE_DEVICE, hosts=HERE, pairs=3, control=slower_by("1.25")
    )
    assert arms(tiny) == "ABBAAB"
    assert numbered(interleaved.candidate) == numbered(interleaved.control) == [1, 2, 3]
    assert interleaved.candidate.samples(THROUGHPUT).median == pytest.approx(400.0)
    assert interleaved.control.samples(THROUGHPUT).median == pytest.approx(320.0)
    first, *_, last = map(progress_line, shown)
    assert first.startswith(f"{CASES[0]}  run 1 of 3 of what is tested, step ")
    assert last.startswith(f"{CASES[0]}  run 3 of 3 of accepted software, step 10 of 10")


def test_it_passes_between_processes_whole(suite):
    TinySystem(suite)
    interleaved = measurer(suite).interleaved(
        ONE_DEVICE, hosts=HERE, pairs=1, control=slower_by("1.25")
    )
    assert interleaved.control.fingerprint is not None
    assert convert(to_builtins(interleaved), InterleavedRuns) == interleaved


def test_the_control_goes_before_all_that_the_user_has_set(suite):
    tiny = TinySystem(suite)
    measurer(suite, settings=slower_by("3")).interleaved(
        ONE_DEVICE, hosts=HERE, pairs=1, control=slower_by("2")
    )
    assert tiny.slower() == ["1n1g 0 1 3", "1n1g 0 1 2"]


def test_the_first_broken_run_ends_it_and_is_shown(suite):
    tiny = TinySystem(suite)
    tiny.behave("0.01 die-at-3-if-1.25")
    interleaved = measurer(suite).interleaved(
        ONE_DEVICE, hosts=HERE, pairs=3, control=slower_by("1.25")
    )
    assert arms(tiny) == "AB"
    assert [run.status for run in interleaved.candidate.runs] == [RunStatus.OK]
    (broken,) = interleaved.control.runs
    assert broken.status is RunStatus.FAILED
    assert "exit code 7" in str(broken.reason)


def test_between_two_runs_is_the_usual_pause(suite):
    TinySystem(suite, launch=["pause_s: 1.0"])
    started = time.monotonic()
    measurer(suite).interleaved(ONE_DEVICE, hosts=HERE, pairs=2, control=slower_by("1.25"))
    assert time.monotonic() - started >= 3.0


def test_logs_lie_apart_and_are_none_of_the_cases_own(suite):
    TinySystem(suite)
    here = measurer(suite)
    here.measure(ONE_DEVICE)
    here.interleaved(ONE_DEVICE, hosts=HERE, pairs=2, control=slower_by("1.25"))
    night = suite.path / "night"

    def found(folder):
        source = LogSource(SYSTEM, None, folder)
        runs = index_logs(source, log_name="mlp", cases=[ONE_DEVICE]).runs_of(ONE_DEVICE.id)
        return [str(Path(log).relative_to(folder)) for _, logs in runs for log in logs]

    mine = [f"{SYSTEM}/1n1g/mlp_b4_fp32_{run}.log" for run in (1, 2)]
    assert found(night) == mine[:1]
    assert found(night / CONTROL_ARM / "candidate") == mine
    assert found(night / CONTROL_ARM / "control") == mine


def test_it_runs_on_the_hosts_that_are_asked_for_in_their_order(suite, over_ssh):
    tiny = TinySystem(suite)
    hosts = [Host(name=name, address=name, devices=2) for name in over_ssh.names]
    launcher = SshLauncher(shlex.split(over_ssh.ssh_command))
    asked = [over_ssh.names[2], over_ssh.names[1]]
    interleaved = measurer(suite, hosts=hosts, launcher=launcher).interleaved(
        TWO_NODES, hosts=asked, pairs=2, control=slower_by("1.25")
    )
    by_rank = sorted({(line.split()[1], line.split()[3]) for line in tiny.hosts()})
    assert by_rank == [("0", asked[0]), ("1", asked[1])]
    for arm in (interleaved.candidate, interleaved.control):
        assert list(arm.fingerprint.hosts) == asked


def test_a_host_that_is_not_there_is_named(suite):
    tiny = TinySystem(suite)
    with pytest.raises(CannotMeasureError, match="has no host node7; it has localhost"):
        measurer(suite).interleaved(ONE_DEVICE, hosts=["node7"], pairs=1, control=slower_by("1.25"))
    assert tiny.starts() == []


def test_somebody_has_to_say_on_which_hosts(suite):
    TinySystem(suite)
    with pytest.raises(CannotMeasureError, match="none are known"):
        measurer(suite).interleaved(ONE_DEVICE, hosts=(), pairs=1, control=slower_by("1.25"))


def test_what_only_the_accepted_software_needs_is_looked_at_before_anything_runs(
    suite,
):
    tiny = TinySystem(suite)
    elsewhere = Setting("*", "python", "", "/no/python", "control")
    with pytest.raises(BrokenError, match="trainer's Python '/no/python' does not run there"):
        measurer(suite).interleaved(ONE_DEVICE, hosts=HERE, pairs=1, control=[elsewhere])
    assert tiny.starts() == []


def take(folder, suite):
    """In a process of its own: ask for a case's interleaved runs, and note who has to take them."""

    def run():
        with (suite / "taken.txt").open("a", encoding="utf-8") as file:
            file.write("taken\n")
        time.sleep(0.3)
        return InterleavedRuns(candidate=one(2.0), control=one(3.0))

    def one(number):
        sound = Run(run=1, metrics={THROUGHPUT: number}, status=RunStatus.OK)
        return Measurement(
            case_id=CASES[0],
            metrics=(throughput("samples/s"),),
            estimator=Estimator.STEADY,
            runs=(sound,),
        )

    shared = Measuring(None, Path(folder))
    assert shared.once("runs", Measurement, CASES[0], lambda: one(1.0)) == one(1.0)
    assert shared.once("interleaved", InterleavedRuns, CASES[0], run).control == one(3.0)


def test_the_processes_of_a_session_share_one(tmp_path):
    context = multiprocessing.get_context("spawn")
    folder = tmp_path / "shared"
    processes = [context.Process(target=take, args=(str(folder), tmp_path)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "taken.txt").read_text(encoding="utf-8") == "taken\n"

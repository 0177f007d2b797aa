"""Running nodes on this machine: what comes back, what is written, and that nothing is left."""

import ast
import inspect
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
from clusters.processes import LONG_S, ancestors_of, is_running, wait_until
from launches import run_commands, run_spec

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.launch_keys import Devices
from pytest_dlperf.launch import launchers, remote_node
from pytest_dlperf.launch import run as run_module
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.launchers import LocalLauncher
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import RunOrder, Stop
from pytest_dlperf.launch.remote_call import sent_modules, source_of
from pytest_dlperf.launch.run import run_on_hosts
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.node import processes, supervisor

pytestmark = pytest.mark.slow

ENOUGH_S = 8.0
"""A limit that a run reaches when its programs are up: beside load that takes some seconds."""
SLEEP = "import time; time.sleep(600)"

# An agent that does not listen, and a worker in a session of its own that does not either: the
# way torchrun starts workers. Both note their numbers once they have stopped listening.
STUBBORN_TREE = """
import os, pathlib, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
folder, role = pathlib.Path(sys.argv[1]), sys.argv[2]
if role == "agent":
    subprocess.Popen([sys.executable, *sys.orig_argv[1:-1], "worker"], start_new_session=True)
part = folder / f"{role}.part"
part.write_text(str(os.getpid()))
part.rename(folder / f"{role}.pid")
time.sleep(600)
"""


def python(code, *arguments):
    return (sys.executable, "-c", code, *arguments)


def nodes(folder, *arguments, **environment):
    return [
        NodeCommand(
            node_rank=rank,
            host="localhost",
            address=launchers.ADDRESS,
            arguments=own,
            environment=environment,
            working_directory=None,
            log=folder / ("run_1.log" if rank == 0 else f"run_1/node{rank}.log"),
        )
        for rank, own in enumerate(arguments)
    ]


def run(commands, *, time_limit_s=LONG_S):
    return run_commands(commands, time_limit_s=time_limit_s)


def record(folder):
    return json.loads((folder / "run_1" / "command.json").read_text(encoding="utf-8"))


def tree_is_up(folder):
    return all((folder / f"{role}.pid").exists() for role in ("agent", "worker"))


def tree(folder):
    return [int((folder / f"{role}.pid").read_text()) for role in ("agent", "worker")]


@pytest.fixture
def folder(tmp_path):
    """A folder for a stubborn tree, which is gone afterwards even where the launcher failed."""
    yield tmp_path
    for noted in tmp_path.glob("*.pid"):
        process = int(noted.read_text())
        if is_running(process):
            os.kill(process, signal.SIGKILL)


def assert_tree_was_ended(folder):
    assert tree_is_up(folder), "the tree never came up: the test shows nothing"
    assert not [process for process in tree(folder) if is_running(process)]


@pytest.fixture
def no_grace(monkeypatch):
    monkeypatch.setattr(remote_node, "TERMINATION_GRACE_S", 0.2)
    monkeypatch.setattr(run_module, "PEER_GRACE_S", 0.2)


@pytest.fixture
def bystander():
    process = subprocess.Popen(python(SLEEP), env={**os.environ, processes.MARKER: "another-run"})
    yield process
    process.kill()
    process.wait()


def test_output_and_errors_of_a_node_go_to_its_log(tmp_path):
    (tmp_path / "run_1.log").touch()
    code = "import sys; print('out', flush=True); print('error', file=sys.stderr)"
    outcome = run(nodes(tmp_path, python(code), python("print('second')")))
    assert (outcome.succeeded, outcome.log_sizes_at_end) == (True, ())
    assert (tmp_path / "run_1.log").read_text() == "out\nerror\n"
    assert (tmp_path / "run_1" / "node1.log").read_text() == "second\n"


def test_a_node_that_asks_for_input_finds_none(tmp_path):
    typed = tmp_path / "typed"
    typed.write_text("for the tests, not for the node")
    own_input = os.dup(0)
    try:
        with typed.open() as file:
            os.dup2(file.fileno(), 0)
        run(nodes(tmp_path, python("import sys; print(repr(sys.stdin.read()))")))
    finally:
        os.dup2(own_input, 0)
        os.close(own_input)
    assert (tmp_path / "run_1.log").read_text() == "''\n"


def test_every_node_has_its_own_exit_code(tmp_path):
    killed = "import os; os.kill(os.getpid(), 9)"
    outcome = run(nodes(tmp_path, python(""), python("raise SystemExit(7)"), python(killed)))
    assert outcome.exit_codes == (0, 7, -signal.SIGKILL)
    assert (outcome.stopped.stop, outcome.error) == (Stop.EXITED, None)
    assert not outcome.succeeded


@pytest.mark.usefixtures("no_grace")
def test_at_the_time_limit_even_a_tree_that_does_not_listen_is_ended(folder):
    outcome = run(nodes(folder, python(STUBBORN_TREE, str(folder), "agent")), time_limit_s=ENOUGH_S)
    assert outcome.stopped.stop is Stop.TIME_LIMIT
    assert outcome.exit_codes == (-signal.SIGKILL,)
    assert not outcome.succeeded
    assert_tree_was_ended(folder)


def test_an_agent_is_asked_to_end_before_it_is_killed(tmp_path):
    code = """
import signal, sys, time
def end(*_):
    print("asked")
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("ready")
time.sleep(600)
"""
    outcome = run(nodes(tmp_path, python(code)), time_limit_s=ENOUGH_S)
    assert outcome.stopped.stop is Stop.TIME_LIMIT
    assert outcome.exit_codes == (3,)
    assert outcome.log_sizes_at_end == (len("ready\n"),)
    assert (tmp_path / "run_1.log").read_text() == "ready\nasked\n"


@pytest.mark.usefixtures("no_grace")
def test_when_one_node_fails_the_others_are_ended(folder):
    waits_for_tree = f"""
import pathlib, sys, time
folder = pathlib.Path({str(folder)!r})
while not all((folder / name).exists() for name in ("agent.pid", "worker.pid")):
    time.sleep(0.02)
sys.exit(5)
"""
    outcome = run(
        nodes(folder, python(STUBBORN_TREE, str(folder), "agent"), python(waits_for_tree))
    )
    assert outcome.exit_codes == (-signal.SIGKILL, 5)
    assert outcome.stopped.stop is Stop.EXITED
    assert_tree_was_ended(folder)


def test_what_a_node_prints_after_another_has_failed_can_be_told_from_what_it_had_printed(
    tmp_path,
):
    before, after = tmp_path / "before", tmp_path / "after"
    # The launcher has seen the failure once its record of the size can no longer change.
    first = f"""
import pathlib, time
print("before")
pathlib.Path({str(before)!r}).touch()
while not pathlib.Path({str(after)!r}).exists():
    time.sleep(0.02)
time.sleep(1)
print("after")
"""
    second = f"""
import pathlib, time
print("last words")
while not pathlib.Path({str(before)!r}).exists():
    time.sleep(0.02)
pathlib.Path({str(after)!r}).touch()
raise SystemExit(5)
"""
    outcome = run(nodes(tmp_path, python(first), python(second)))
    assert outcome.exit_codes == (0, 5)
    assert (tmp_path / "run_1.log").read_text() == "before\nafter\n"
    assert outcome.log_sizes_at_end == (len("before\n"), len("last words\n"))
    record = json.loads((tmp_path / "run_1" / "command.json").read_text(encoding="utf-8"))
    sizes = tuple(node["log_size_at_end"] for node in record["nodes"])
    assert sizes == outcome.log_sizes_at_end


def test_what_a_successful_agent_leaves_behind_is_ended(folder):
    code = f"""
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
pathlib.Path({str(folder)!r}, "child.pid").write_text(str(child.pid))
child.returncode = 0  # it is left alone on purpose
"""
    assert run(nodes(folder, python(code))).succeeded
    assert not is_running(int((folder / "child.pid").read_text()))


def test_what_an_agent_leaves_behind_is_asked_to_end_before_it_is_killed(tmp_path):
    child = """
import signal, sys, time
def end(*_):
    print("asked", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(600)
"""
    agent = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], start_new_session=True)
while open({str(tmp_path / "run_1.log")!r}).read() != "ready\\n":
    time.sleep(0.02)
child.returncode = 0  # it is left alone on purpose
"""
    assert run(nodes(tmp_path, python(agent))).succeeded
    assert (tmp_path / "run_1.log").read_text() == "ready\nasked\n"


def test_the_supervisor_runs_on_an_old_python():
    modules = sent_modules(supervisor)
    sources = [source_of(supervisor).decode("ascii"), *map(inspect.getsource, modules)]
    trees = [ast.parse(source, feature_version=(3, 6)) for source in sources]
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    known_to_3_6 = (
        "collections.abc contextlib ctypes enum errno fcntl functools glob hashlib "
        "json os pwd re resource select shutil signal socket stat struct subprocess sys threading "
        "time types typing"
    )
    sent_along = {module.__name__ for module in modules}
    assert imported - sent_along == set(known_to_3_6.split())


@pytest.mark.usefixtures("no_grace")
def test_processes_of_others_are_left_alone(tmp_path, bystander):
    run(nodes(tmp_path, python("raise SystemExit(1)"), python(SLEEP)))
    assert bystander.poll() is None


# A process that launches a run: where its log goes, how patient it is, what it runs.
TESTS = str(Path(__file__).parent)
DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
from launches import run_commands
from pytest_dlperf.launch import remote_node
from pytest_dlperf.launch.plan import NodeCommand
remote_node.TERMINATION_GRACE_S = float(sys.argv[2])
command = NodeCommand(node_rank=0, host="localhost", address="127.0.0.1",
    arguments=tuple(sys.argv[3:]), environment={}, working_directory=None,
    log=Path(sys.argv[1], "run_1.log"))
run_commands([command], time_limit_s=600)
"""


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_signal_ends_the_run_and_then_does_what_it_always_does(folder, number, times):
    agent = python(STUBBORN_TREE, str(folder), "agent")
    # Without a second signal, a launcher that was so patient would not be done in time.
    grace_s = 0.2 if times == 1 else 10 * LONG_S
    with subprocess.Popen(
        python(DRIVER, TESTS, str(folder), str(grace_s), *agent), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(lambda: tree_is_up(folder))
            for _ in range(times):
                process.send_signal(number)
                time.sleep(0.5)  # two of a kind that wait together would arrive as one
            _, errors = process.communicate(timeout=LONG_S)
        finally:
            process.kill()
    assert process.returncode == -number, errors
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    assert_tree_was_ended(folder)
    assert record(folder)["nodes"][0]["exit_code"] == -signal.SIGKILL


@pytest.mark.usefixtures("no_grace")
def test_an_exception_in_the_middle_ends_the_run(folder):
    def fail(*_):
        raise TimeoutError("raised in the middle")

    def interrupt():
        wait_until(lambda: tree_is_up(folder))
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, fail)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(TimeoutError, match="in the middle"):
            run(nodes(folder, python(STUBBORN_TREE, str(folder), "agent")))
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)
    assert_tree_was_ended(folder)


def test_a_signal_that_was_ignored_from_the_start_ends_no_run(tmp_path):
    """As in the background of a script, or below nohup; the supervisor ignores it too."""
    code = f"import os\nfor pid in (os.getppid(), {os.getpid()}): os.kill(pid, {signal.SIGINT})"
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        outcome = run(nodes(tmp_path, python(code)))
    finally:
        signal.signal(signal.SIGINT, previous)
    assert (outcome.exit_codes, outcome.error) == ((0,), None)


def test_a_run_may_be_started_outside_the_main_thread(tmp_path):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run(nodes(tmp_path, python("")))))
    thread.start()
    thread.join()
    assert [outcome.exit_codes for outcome in outcomes] == [(0,)]


def environment_of_a_run(folder, **added):
    code = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    assert run(nodes(folder, python(code, str(folder / "environment.json")), **added)).succeeded
    return json.loads((folder / "environment.json").read_text(encoding="utf-8"))


def test_a_node_has_the_environment_of_the_tests_and_its_own_on_top(tmp_path, monkeypatch):
    monkeypatch.setenv("SITE_SETTING", "kept")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    environment = environment_of_a_run(tmp_path, OMP_NUM_THREADS="1", MASTER_PORT="1234")
    assert environment["SITE_SETTING"] == "kept"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["MASTER_PORT"] == "1234"
    assert environment["PYTHONUNBUFFERED"] == "1"


def test_no_shell_reads_what_a_node_is_given(tmp_path):
    name = "'single' \"double\" line\nbreak $(touch made) `id`; * {x}"
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['OUT']]))"
    spec = Launch(
        command=(*python(code), "{run_directory}", "last"),
        environment={"OUT": "{run_directory}"},
        working_directory="{run_directory}",
        devices=Devices.CPU,
    )
    log = tmp_path / f"{name}.log"
    case = Case.from_id("pytorch-resnet18-fp32-b8-1n1g")
    outcome = run_spec(spec, case, Window(warmup_steps=1, measured_steps=1), log)
    assert outcome.succeeded
    folder = str(tmp_path / name)
    assert json.loads(log.read_text(encoding="utf-8")) == [[folder, "last"], folder]
    assert {path.name for path in Path(folder).iterdir()} == {"command.json"}


def test_the_record_says_what_was_executed_and_how_it_ended(tmp_path):
    commands = nodes(tmp_path, python("", "a b"), python("raise SystemExit(2)"), SETTING="x y")
    outcome = run(commands, time_limit_s=33)
    kept = record(tmp_path)
    assert datetime.fromisoformat(kept["started"]).tzinfo is not None
    assert kept["time_limit_s"] == 33
    assert kept["elapsed_s"] == pytest.approx(outcome.elapsed_s, abs=0.001)
    assert (kept["stop"], kept["error"]) == ("exited", None)
    first, second = kept["nodes"]
    assert first["arguments"] == [sys.executable, "-c", "", "a b"]
    assert first["environment"] == {"SETTING": "x y"}
    assert (first["node_rank"], first["address"]) == (0, "127.0.0.1")
    assert (first["exit_code"], second["exit_code"]) == (0, 2)
    assert second["log"] == str(tmp_path / "run_1" / "node1.log")


def test_secrets_reach_the_node_and_not_the_record(tmp_path):
    code = "import json, os, sys; print(json.dumps([*sys.argv[1:], os.environ['GITHUB_PAT']]))"
    secret = ("--password", "hush-hush", "--header", "X-Api-Key: hush-hush")
    assert run(nodes(tmp_path, python(code, *secret, "last"), GITHUB_PAT="hush-hush")).succeeded
    log = (tmp_path / "run_1.log").read_text(encoding="utf-8")
    assert json.loads(log) == [*secret, "last", "hush-hush"]
    file = tmp_path / "run_1" / "command.json"
    assert "hush-hush" not in file.read_text(encoding="utf-8")
    kept = record(tmp_path)["nodes"][0]
    assert kept["arguments"][3:] == ["--password", "***", "--header", "X-Api-Key: ***", "last"]
    assert kept["environment"] == {"GITHUB_PAT": "***"}


def test_bytes_that_are_no_text_reach_a_node(tmp_path, monkeypatch):
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff=\xc3\xa9"))
    code = "import os, sys; print(os.fsencode(sys.argv[1]), os.environb[b'ODD'])"
    assert run(nodes(tmp_path, python(code, os.fsdecode(b"\xfe\xc3\xa9\n")))).succeeded
    log = (tmp_path / "run_1.log").read_text()
    assert log == "b'\\xfe\\xc3\\xa9\\n' b'\\xff=\\xc3\\xa9'\n"


def test_a_program_that_is_not_there_is_named(tmp_path):
    outcome = run(nodes(tmp_path, ("no-such-trainer", "--x")))
    assert outcome.exit_codes == (None,)
    assert not outcome.succeeded
    assert outcome.error is not None
    assert "node 0" in outcome.error
    assert "'no-such-trainer' in the folders of PATH: No such file" in outcome.error
    assert record(tmp_path)["error"] == outcome.error


def test_a_working_directory_that_is_not_there_is_named(tmp_path):
    command = NodeCommand(
        node_rank=0,
        host="localhost",
        address="127.0.0.1",
        arguments=python(""),
        environment={},
        working_directory=str(tmp_path / "gone"),
        log=tmp_path / "run_1.log",
    )
    outcome = run([command])
    assert outcome.error is not None
    assert f"working directory {str(tmp_path / 'gone')!r}" in outcome.error


def test_a_log_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run(nodes(tmp_path / "file", python("")))
    assert outcome.exit_codes == (None,)
    assert str(outcome.error).endswith(f"{tmp_path / 'file'}: File exists")


def test_a_log_that_another_run_has_written_is_left_as_it_is(tmp_path):
    log = "run_1/node1.log"
    (tmp_path / "run_1").mkdir()
    (tmp_path / log).write_text("another\n")
    (tmp_path / "run_1" / "command.json").write_text("another")
    started = tmp_path / "started"
    code = python(f"open({str(started)!r}, 'w')")
    outcome = run(nodes(tmp_path, code, code))
    assert outcome.error == f"the log {tmp_path / log} is not empty: another run has written it"
    assert (outcome.exit_codes, outcome.log_sizes_at_end) == ((None, None), ())
    assert not started.exists()
    assert (tmp_path / log).read_text() == "another\n"
    assert (tmp_path / "run_1" / "command.json").read_text() == "another"


def test_when_a_later_node_cannot_be_started_the_earlier_are_ended(tmp_path):
    outcome = run(nodes(tmp_path, python(SLEEP), ("no-such-trainer",)))
    assert outcome.exit_codes == (-signal.SIGTERM, None)
    assert outcome.error is not None
    assert "node 1" in outcome.error


def test_a_run_whose_output_is_lost_has_failed_and_says_where(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        outcome = run(nodes(tmp_path, python("print('x' * 30_000)")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert outcome.exit_codes == (0,)
    log = tmp_path / "run_1.log"
    assert f"some of the output is lost: cannot write the log {log}: " in str(outcome.error)


def test_what_is_mounted_in_a_scratch_folder_is_left_and_told(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount file systems: run the tests as root")
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    (elsewhere / "data").touch()
    code = (
        "import os, subprocess, sys; scratch, there = sys.argv[1:]; print(scratch, flush=True)\n"
        "os.mkdir(scratch + '/a b')\n"
        "subprocess.run(['mount', '--bind', there, scratch + '/a b'], check=True)"
    )
    spec = Launch(command=python(code, "{scratch_directory}", str(elsewhere)), devices=Devices.CPU)
    case = Case.from_id("pytorch-resnet18-fp32-b8-1n1g")
    log = tmp_path / "run_1.log"
    told = []
    try:
        outcome = run_spec(spec, case, Window(warmup_steps=1, measured_steps=1), log, told.append)
        assert outcome.succeeded
        assert (elsewhere / "data").exists()
        assert "/a b is mounted there" in told[0]
    finally:
        scratch = log.read_text().strip()
        subprocess.run(["/bin/umount", f"{scratch}/a b"], check=True)
        shutil.rmtree(scratch)


NOTING = (
    "import os, pathlib, sys, time; part = pathlib.Path(sys.argv[1], 'part')\n"
    "part.write_text(str(os.getpid())); part.rename(part.with_name('agent.pid')); time.sleep(600)"
)


def test_a_program_ends_with_its_supervisor_even_if_nobody_is_left_to_look(folder):
    program = python(NOTING, str(folder))
    with subprocess.Popen(python(DRIVER, TESTS, str(folder), "5", *program)) as process:
        wait_until((folder / "agent.pid").exists)
        trainer = int((folder / "agent.pid").read_text())
        killed, *_ = ancestors_of(trainer)
        process.send_signal(signal.SIGSTOP)
        os.kill(killed.pid, signal.SIGKILL)
        process.kill()
    wait_until(lambda: not is_running(trainer))


def test_two_hosts_that_are_one_machine_are_told_instead_of_waited_for(tmp_path):
    made = tuple(
        Node(
            host=Host(name=name, address=name, devices=1),
            device_ids=(0,),
            locked_devices=(0,),
            lock_scope=tmp_path.name,
            log=tmp_path / f"{name}.log",
        )
        for name in ("one", "two")
    )
    order = RunOrder(nodes=made, plan=lambda _: [], time_limit_s=LONG_S)
    outcome = run_on_hosts(LocalLauncher(), order)
    assert outcome.error is not None
    assert "another host of this run is the same machine" in outcome.error

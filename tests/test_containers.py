"""Trainers in containers: started below the supervisor, seen from inside, and gone at the end."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from clusters.processes import LONG_S, processes_with, wait_until
from trainers import CASES, TinySystem, measurer

from pytest_dlperf.config.settings import parse_setting
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.metric import THROUGHPUT

ONE_DEVICE, _, TWO_NODES = map(Case.from_id, CASES)
# Podman waits for the end of what it has killed, as a system's first process sees to it.
_REAPS = """\
import os, subprocess, sys
from pytest_dlperf.node.processes import become_reaper
become_reaper()
command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
print(subprocess.Popen(command, stdout=subprocess.DEVNULL).pid, flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def boxed(tiny, *more, runtime="podman"):
    """Have the trainer run in the image ``tested``, unless more is said."""
    said = ["image=tested", f"runtime={runtime}", f"mounts={tiny.folder}"]
    return [parse_setting(f"*.container.{text}") for text in (*said, *more)]


def software(found):
    return dict(found.fingerprint.software)


def test_a_run_is_measured_in_its_image(suite, podman):
    """The image has the slower software, and another version of a module than the host: none."""
    tiny = TinySystem(suite, launch=["requires_modules: [speed]"])

    found = measurer(suite, settings=boxed(tiny)).measure(ONE_DEVICE)

    [run] = found.runs
    assert (run.status, run.reason) == (RunStatus.OK, None)
    assert found.samples(THROUGHPUT).median == pytest.approx(320)
    assert software(found)["speed"] == "2.0"
    assert re.fullmatch(r"tested \([0-9a-f]{12}\)", software(found)["image"])
    [file] = (suite.path / "night").rglob("command.json")
    [node] = json.loads(file.read_text())["nodes"]
    assert node["arguments"][:3] == ["podman", "run", "--rm"]
    assert (launch := found.fingerprint.launch) is not None
    assert launch.options["container.image"] == "tested"
    assert "podman" not in launch.arguments
    assert podman.containers() == []


def nasty(tiny):
    """Have the trainer note that it is asked to end, and leave a child that nothing marks.

    Returns a text by which the child is found.
    """
    trainer = tiny.folder / "train.py"
    child = f"{tiny.folder}/nothing"
    trainer.write_text(
        "import os, pathlib, signal, sys\n"
        "def asked(*_):\n"
        "    pathlib.Path(__file__).with_name('asked').touch()\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, asked)\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"    os.execve('/bin/sh', ['sh', '-c', 'while :; do sleep 1; done', {child!r}], {{}})\n"
        + trainer.read_text()
    )
    tiny.behave("0.01 stay")
    return child


def test_the_trainer_is_asked_to_end_and_nothing_is_left(suite, podman):
    tiny = TinySystem(suite)
    child = nasty(tiny)

    found = measurer(suite, settings=boxed(tiny)).measure(ONE_DEVICE)

    assert (found.runs[0].status, found.runs[0].reason) == (RunStatus.OK, None)
    assert (tiny.folder / "asked").exists()
    assert processes_with(child, files=["cmdline"]) == []
    assert podman.containers() == []


def test_nothing_is_left_of_a_session_that_is_killed(suite, podman):
    tiny = TinySystem(suite)
    child = nasty(tiny)
    tiny.behave("0.01 hang-at-5")
    (suite.path / "baselines" / "local").mkdir(exist_ok=True)
    (suite.path / "baselines" / "local" / "cluster.yaml").write_text(
        "estimator: steady\nvars:\n  '*':\n    container: "
        f"{{runtime: podman, image: tested, mounts: [{tiny.folder}]}}\n"
    )
    above = subprocess.Popen(
        [sys.executable, "-c", _REAPS, "bench_tests", "-k", "throughput and tiny and 1n1g"],
        cwd=suite.path,
        stdout=subprocess.PIPE,
    )
    assert above.stdout is not None
    with above.stdout as printed:
        session = int(printed.readline())
    try:
        wait_until(lambda: processes_with(child, files=["cmdline"]), what="a container")
    finally:
        os.kill(session, signal.SIGKILL)
    wait_until(lambda: not processes_with(child, files=["cmdline"]), what="its end")
    wait_until(lambda: not podman.containers(), what="no container")
    above.wait(LONG_S)


@pytest.mark.usefixtures("podman")
def test_an_image_that_is_not_there_is_found_before_the_first_run(suite):
    tiny = TinySystem(suite)
    with pytest.raises(BrokenError, match="not run in the image localhost/missing there: exit"):
        measurer(suite, settings=boxed(tiny, "image=localhost/missing")).measure(ONE_DEVICE)
    assert tiny.starts() == []


@pytest.mark.usefixtures("podman")
def test_what_the_image_lacks_is_found_inside_of_it(suite):
    """The folder is on the host, and the module is in no image."""
    tiny = TinySystem(
        suite,
        launch=[
            "variables: {data: {meaning: x, kind: folder}}",
            "arguments: ['{data}']",
            "requires_modules: [slowness]",
        ],
    )
    folder = suite.path / "data"
    folder.mkdir()
    data = [parse_setting(f"*.data={folder}")]
    with pytest.raises(BrokenError) as caught:
        measurer(suite, settings=[*boxed(tiny), *data]).measure(ONE_DEVICE)
    assert f"data: there is no folder '{folder}'" in str(caught.value)
    assert "'python3' there has no module slowness" in str(caught.value)


def test_a_runtime_that_is_not_there_is_told(suite, monkeypatch):
    tiny = TinySystem(suite)
    monkeypatch.setenv("PATH", str(suite.path))
    with pytest.raises(BrokenError, match="docker: No such file"):
        measurer(suite, settings=boxed(tiny, runtime="docker")).measure(ONE_DEVICE)


def test_a_head_node_starts_no_container(suite):
    """What it starts on other nodes would run outside."""
    tiny = TinySystem(suite, launch=["start_on: head"])
    with pytest.raises(BrokenError, match=r"start_on: head.*container\.runtime=none"):
        measurer(suite, settings=boxed(tiny)).measure(ONE_DEVICE)

"""Changes to accepted numbers: who was quicker stands, and a file is the old one or the new one."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from baseline_texts import (
    ACCEPTANCE,
    MACHINE,
    METRICS,
    SYSTEM,
    TEXT,
    accept,
    cluster_in,
    create,
    do,
    extend,
    known,
    read,
    write,
)
from clusters.processes import LONG_S
from msgspec.structs import replace

from pytest_dlperf.baselines import recording
from pytest_dlperf.baselines.schemas import schema_text
from pytest_dlperf.config.cluster import find_cluster
from pytest_dlperf.files.locks import LockError
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.metric import Better

MEMORY = METRICS["peak_memory"]
TESTS = Path(__file__).parent


@pytest.fixture
def cluster(tmp_path):
    return cluster_in(tmp_path)


# ------------------------------------------------------------------------------------ life


def test_a_number_lives_through_its_changes(cluster):
    name = "fp32-b128-4n8g"
    do(cluster, [create(name, 100.0, machine=MACHINE)])
    first = known(cluster, name)
    assert first.rolling == ((100.0,),)
    assert (first.acceptance, first.machine) == (ACCEPTANCE, MACHINE)

    do(cluster, [extend(cluster, name)])
    extended = known(cluster, name)
    assert replace(extended, sessions=()) == first
    assert extended.rolling == ((100.0,), (360.0, 361.5, 359.25, 360.5))

    later = replace(ACCEPTANCE, at="2026-12-01T03:00:00+00:00")
    do(cluster, [accept(cluster, name, 360.25, acceptance=later)])
    accepted = known(cluster, name)
    assert (accepted.accepted, accepted.sessions, accepted.acceptance) == (360.25, (), later)
    # Nobody could look at the machine of this session.
    assert accepted.machine == {}


def test_the_first_number_makes_the_files(cluster):
    do(cluster, [create("bf16-gb196-s4096-tp2_pp4-dali-1n8g", 0.00123457)])

    assert known(cluster, "bf16-gb196-s4096-tp2_pp4-dali-1n8g").accepted == 0.00123457
    assert find_cluster(cluster.directory.parent, "mine").estimator is Estimator.STEADY


@pytest.mark.parametrize(
    "emptied", ["entries:\n", "entries:\n  fp32-b128:\n", "entries:\n  fp16-b224:\n"]
)
def test_what_deleting_leaves_can_be_read_and_extended(cluster, emptied):
    file = write(cluster, TEXT[: TEXT.index("entries:")] + emptied)
    assert read(cluster) == {}

    do(cluster, [create("fp32-b128-1n8g", 2600.0)])

    assert set(read(cluster)) == {("fp32-b128", "1n8g")}
    kept = iter(file.read_text(encoding="utf-8").splitlines())
    assert all(line in kept for line in emptied.splitlines())


def test_what_the_cluster_says_of_its_machine_is_not_said_again(tmp_path):
    cluster = cluster_in(tmp_path, machine={**MACHINE, "network": "infiniband"})

    do(
        cluster,
        [
            create("fp32-b128-1n1g", machine=MACHINE),
            create("fp32-b128-4n8g", machine={**MACHINE, "network": "ethernet"}),
        ],
    )

    text = (cluster.directory / f"{SYSTEM}.yaml").read_text(encoding="utf-8")
    assert text.count("machine:") == 1
    machines = {key[1]: entry["throughput"].machine for key, entry in read(cluster).items()}
    assert machines["1n1g"]["network"] == "infiniband"
    assert machines["4n8g"]["network"] == "ethernet"


def test_new_files_name_the_schemas_that_lie_beside_the_clusters(cluster):
    do(cluster, [create("fp32-b128-1n1g")])

    for name, kind in ((SYSTEM, "baselines"), ("cluster", "cluster")):
        file = cluster.directory / f"{name}.yaml"
        first_line = file.read_text(encoding="utf-8").splitlines()[0]
        way = first_line.removeprefix("# yaml-language-server: $schema=")
        assert (file.parent / way).read_text(encoding="utf-8") == schema_text(kind)
    assert find_cluster(cluster.directory.parent, "mine").name == "mine"


def test_schemas_are_brought_up_to_date_and_never_laid_where_nobody_asks(cluster):
    folder = cluster.directory.parent / ".schema"
    write(cluster, TEXT.replace("../.schema/", "../../schemas/"))
    do(cluster, [extend(cluster, "fp32-b128-1n1g")])
    assert not folder.exists()

    write(cluster)
    folder.mkdir()
    (folder / "baselines.json").write_text("{}", encoding="utf-8")
    do(cluster, [extend(cluster, "fp32-b128-1n1g")])
    assert '"sessions"' in (folder / "baselines.json").read_text(encoding="utf-8")


# ------------------------------------------------------------------------- who was quicker


def test_a_session_that_was_judged_against_other_numbers_changes_nothing(cluster):
    file = write(cluster)
    late = [
        accept(cluster, "fp32-b128-1n1g", 1.0),
        extend(cluster, "fp32-b128-1n8g"),
        extend(cluster, "fp32-b128-4n8g"),
        create("fp64-b1-1n1g"),
    ]
    do(cluster, [accept(cluster, "fp32-b128-1n1g", 360.0)])
    do(cluster, [extend(cluster, "fp32-b128-1n8g")])
    do(cluster, [create("fp64-b1-1n1g", 5.0)])
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("    4n8g:\n", "    2n8g:\n"), encoding="utf-8")
    before = file.read_bytes()

    result = do(cluster, late)

    assert result.done == ()
    assert [change for change, _ in result.refused] == late
    for _, reason in result.refused:
        assert reason.startswith(f"another session has changed {file}:")
    assert file.read_bytes() == before


def test_lines_that_moved_are_no_change(cluster):
    file = write(cluster)
    change = extend(cluster, "fp32-b128-1n1g")
    file.write_text("# one more\n" + TEXT, encoding="utf-8")

    assert do(cluster, [change]).done == (change,)


def test_another_session_may_change_another_metric_meanwhile(cluster):
    write(cluster)
    change = extend(cluster, "fp32-b128-1n8g")
    do(cluster, [accept(cluster, "fp32-b128-1n8g", 12000.0, "peak_memory")])

    assert do(cluster, [change]).done == (change,)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (replace(MEMORY, unit="GiB"), "in 'MB', lower is better, and this session measured 'GiB'"),
        (replace(MEMORY, better=Better.HIGHER), "this session measured 'MB', higher is better"),
    ],
    ids=["unit", "direction"],
)
def test_a_metric_of_another_kind_is_never_recorded(cluster, other, told):
    file = write(cluster)
    change = replace(create("fp32-b128-1n1g", 13.0, "peak_memory"), metric=other)

    [(_, reason)] = do(cluster, [change]).refused

    assert reason.startswith(f"{file}:7 has peak_memory")
    assert told in reason
    assert reason.endswith("; delete the metric from the file to record it anew")
    assert file.read_bytes().decode() == TEXT

    memory = "      peak_memory: {accepted: 13000, runs: {1: 12990, 2: 13010}}\n"
    write(cluster, TEXT.replace(memory, ""))
    do(cluster, [change])
    now = known(cluster, "fp32-b128-1n1g", "peak_memory")
    assert (now.unit, now.better) == (other.unit, other.better)


def test_a_file_of_another_estimator_is_left_alone(cluster):
    file = write(cluster)
    change = extend(cluster, "fp32-b128-1n1g")
    other = replace(change, now=replace(change.now, estimator=Estimator.PUBLISHED))

    [(_, reason)] = do(cluster, [other]).refused

    assert reason == f"{file} is steady, this session measured published"
    assert file.read_bytes().decode() == TEXT


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (b"\xff" + TEXT.encode(), r"yaml:1: \$: is not UTF-8: invalid start byte at byte 0"),
        (TEXT.replace("steady", "steedy").encode(), "found 'steedy'"),
    ],
    ids=["no text", "mistakes"],
)
def test_a_file_with_mistakes_stays_as_it_is(cluster, broken, told):
    file = write(cluster)
    change = extend(cluster, "fp32-b128-1n1g")
    file.write_bytes(broken)
    with pytest.raises(YamlError, match=told):
        do(cluster, [change])
    assert file.read_bytes() == broken


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LockError, match=r"mine/\.lock cannot be acquired"):
        do(cluster_in(tmp_path / "file"), [create("fp32-b128-1n8g")])


def test_an_error_in_one_file_leaves_those_of_all_systems(cluster, monkeypatch):
    file = write(cluster)
    one = extend(cluster, "fp32-b128-1n1g")
    other = replace(create("fp32-b128-1n1g"), case=Case.from_id("paddle-bert-fp32-b128-1n1g"))
    write_whole = recording.write_whole

    def full(path, content, **how):
        if path.stem == "paddle-bert":
            raise OSError("no space left on device")
        write_whole(path, content, **how)

    with monkeypatch.context() as patch:
        patch.setattr(recording, "write_whole", full)
        with pytest.raises(OSError, match="no space left"):
            do(cluster, [one, other])
    assert file.read_text(encoding="utf-8") == TEXT
    assert do(cluster, [one, other]).done == (one, other)


# ---------------------------------------------------------------------------- processes


def program(text, folder):
    """Run a program that uses what this module uses; it prints one line of JSON."""
    imports = "import itertools, json, os, shutil, signal, sys\nfrom pathlib import Path\n"
    mine = "from baseline_texts import *\ncluster = cluster_in(Path.cwd())\n"
    source = f"sys.path.insert(0, {str(TESTS)!r})\n{mine}{textwrap.dedent(text)}"
    done = subprocess.run(
        [sys.executable, "-c", imports + source],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_of_sessions_at_once_one_extends_and_all_create(tmp_path):
    counts = program(
        """
        do(cluster, [create("fp32-b128-1n1g", 5.0)])
        one = extend(cluster, "fp32-b128-1n1g")  # all were judged against the same
        children = []
        for number in range(8):
            child = os.fork()
            if not child:
                result = do(cluster, [one, create(f"fp32-b128-{number + 2}n8g")])
                os._exit(len(result.done) * 10 + len(result.refused))
            children.append(child)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]))
        """,
        tmp_path,
    )

    assert sorted(counts) == [11] * 7 + [20]
    now = read(cluster_in(tmp_path))
    assert len(now) == 9
    assert len(now["fp32-b128", "1n1g"]["throughput"].sessions) == 1


KILLED = """
from pytest_dlperf.baselines import recording
write_whole = recording.write_whole
before = {text!r}
def attempt(at):
    seen = itertools.count(1)
    steps = {{"open", "write", "flush", "fsync", "close", "chmod", "replace", "rename", "mkdir"}}
    def perhaps_die(frame, event, function):  # before and after each step
        if event.startswith("c_") and function.__name__ in steps and next(seen) == at:
            os.kill(os.getpid(), signal.SIGKILL)
    changes = [create("fp32-b128-2n8g")]
    if before:
        changes.append(extend(cluster, "fp32-b128-1n1g"))
        changes.append(accept(cluster, "fp32-b128-4n8g", 2, "speedup"))
    def watched(*arguments):
        sys.setprofile(perhaps_die)
        write_whole(*arguments)
        sys.setprofile(None)
    recording.write_whole = watched
    do(cluster, changes)
    os._exit(0)

found = []
for at in itertools.count(1):
    for folder in ("mine", ".schema"):
        shutil.rmtree(folder, ignore_errors=True)
    file = cluster.directory / (SYSTEM + ".yaml")
    if before:
        write(cluster, before)
    child = os.fork()
    if not child:
        attempt(at)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = file.read_bytes().decode() if file.exists() else None
    again = do(cluster, [create("fp64-b1-1n1g")])  # no lock is left
    found.append([status, text, len(again.done)])
    if status != -signal.SIGKILL:
        break
print(json.dumps(found))
"""


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("text", [TEXT, None], ids=["a file that stands", "a new file"])
def test_killed_at_any_moment_the_file_is_the_old_or_the_new_one(tmp_path, text):
    found = program(KILLED.format(text=text), tmp_path)

    *killed, (status, new, _) = found
    assert status == 0
    assert new not in {text, None}
    assert len(killed) > 10
    assert {one for _, one, _ in killed} == {text, new}
    assert {done for *_, done in found} == {1}

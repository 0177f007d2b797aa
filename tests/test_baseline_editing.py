"""What a change does to a baseline file: its own entry changes, and no other."""

import shutil
import subprocess
from itertools import pairwise

import pytest
from baseline_texts import (
    ACCEPTANCE,
    MACHINE,
    NIGHT,
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
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.measurement import LaunchFacts


@pytest.fixture
def cluster(tmp_path):
    return cluster_in(tmp_path)


WRITTEN = f"""\
entries:
  # The paper's.
  fp32-b128:   # the batch of the paper
    # one
    1n1g:
      throughput:
        accepted: 360.25 # measured on a Sunday

        runs: {{1: 360.0, 2: 361.5, 3: 359.25, 4: 360.5}} # two of them
        sessions:
          - {{at: "{NIGHT}", runs: [360.0, 361.5, 359.25, 360.5]}}
        note: >-
          Slower
          # than it looks
        acceptance:
          at: "{NIGHT}"
          by: "Ana Díaz <ana@example.org>"
          commit: "0123456789abcdef0123456789abcdef01234567"
          reason: "the loader reads \\"ahead\\": 2 %"
          hosts: [node-1, "node 2"]
          software: {{driver: "440.33.01", nccl: "2.7.3", paddlepaddle-gpu: "1.8.3"}}
          commits: {{"/opt/it's here": "89abcdef0123"}}
          launch:
            launcher: ssh
            arguments: [python, train.py, "--name", "it's one", "", "{{run}}"]
            environment: {{NCCL_DEBUG: "", OMP_NUM_THREADS: "1", PS1: " # "}}
            working_directory: "/opt/a trainer"
            options: {{image: "registry.example.org/paddle:1.8"}}
        machine: {{device: "Tesla V100-SXM2-16GB", devices_per_node: "8", interconnect: nvlink}}
      speedup: 1.0   # by definition

    # two nodes were never run
    1n8g:  # a node
      peak_memory:
        accepted: 13000
        runs: {{1: 12990, 2: 13010}}
      throughput:
        runs: {{1: 2699.0, 2: 2701.0}}
        accepted: 2700.0
        tolerance_percent: 3
    # after it
    4n8g:
      throughput:
        accepted: 9348.17
        sessions:
          - {{at: "{NIGHT}", runs: [360.0, 361.5, 359.25, 360.5]}}
      speedup: {{accepted: 26.5, over: 352.72}}
      acceptance:
        at: "2026-10-01T03:00:00+00:00"
        reason: first
      machine: {{device: old}}
  # the other one
  fp16-b224:
    1n1g: {{throughput: 1034.64}}
# the end
"""


def test_entries_are_written_in_their_order_and_comments_stay(cluster):
    file = write(cluster)
    do(cluster, [accept(cluster, "fp32-b128-1n1g", 360.25, machine=MACHINE)])
    runs = {1: 2699.0, 2: 2701.0}
    do(cluster, [accept(cluster, "fp32-b128-1n8g", 2700.0, runs=runs, acceptance=None)])
    do(cluster, [extend(cluster, "fp32-b128-1n1g"), extend(cluster, "fp32-b128-4n8g")])

    text = file.read_text(encoding="utf-8")

    assert "entries:\n" + text.partition("entries:\n")[2] == WRITTEN
    assert text.startswith(TEXT.partition("\n  throughput: {")[0])
    one = known(cluster, "fp32-b128-1n1g")
    assert (one.note, one.acceptance) == ("Slower # than it looks", ACCEPTANCE)
    eight = known(cluster, "fp32-b128-1n8g")
    assert (eight.tolerance_percent, eight.mean, eight.sessions) == (3.0, None, ())


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_what_all_metrics_were_accepted_by_is_said_once(cluster, order):
    file = write(cluster)
    name, machine = "fp32-b128-4n8g", {"device": "old"}
    both = [
        accept(cluster, name, 9000.0, machine=machine),
        accept(cluster, name, 25.0, "speedup", over=350.1, machine=machine),
    ]
    for said, which in zip([2, 1], order, strict=True):
        do(cluster, [both[which]])
        assert file.read_bytes().count(b"acceptance:") == said
    for change in both:
        now = known(cluster, name, change.metric.name)
        assert (now.accepted, now.acceptance) == (change.now.accepted, ACCEPTANCE)


def test_a_machine_of_all_metrics_is_said_by_each_once_one_is_of_another(cluster):
    write(cluster)

    do(cluster, [create("fp32-b128-4n8g", 13000.0, "peak_memory")])

    entry = read(cluster)["fp32-b128", "4n8g"]
    assert {name: one.machine for name, one in entry.items()} == {
        "throughput": {"device": "old"},
        "speedup": {"device": "old"},
        "peak_memory": {},
    }


def test_beyond_twelve_sessions_the_oldest_goes(cluster):
    file = write(cluster)
    for night in range(3, 15):
        change = extend(cluster, "fp32-b128-1n8g", at=f"2026-11-{night:02}T03:00:00+00:00")
        do(cluster, [change])

    now = known(cluster, "fp32-b128-1n8g")
    assert [session.at[8:10] for session in now.sessions] == [f"{day:02}" for day in range(3, 15)]
    assert len(now.rolling) == 12
    assert "after it" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "before_it", "behind_it"),
    [
        (
            "fp32-b128-1n2g",
            "      speedup: 1.0   # by definition\n    1n2g:",
            "\n\n    # two nodes were never",
        ),
        ("fp32-b128-2n8g", "        tolerance_percent: 3\n    2n8g:", "\n    # after it"),
        ("fp32-b128-8n8g", "      machine: {device: old}\n    8n8g:", "\n  # the other one"),
        ("fp16-b256-1n1g", "      throughput: 9\n  fp16-b256:\n    1n1g:", "\n# the end"),
        ("fp16-b64-1n1g", "  # The paper's.\n  fp16-b64:\n    1n1g:", "\n  fp32-b128:"),
    ],
    ids=["below the first", "in the middle", "at the end", "a group behind", "a group in front"],
)
def test_a_new_entry_stands_behind_the_smaller_ones(cluster, name, before_it, behind_it):
    old = TEXT.replace("1n1g: {throughput: 1034.64}", "1n1g:\n      throughput: 9")
    file = write(cluster, old)

    do(cluster, [create(name, acceptance=None)])

    text = file.read_text(encoding="utf-8")
    entry = "\n      throughput:\n        accepted: 1000.0\n        runs: {1: 1000.0}"
    assert f"{before_it}{entry}{behind_it}" in text
    assert known(cluster, name) is not None


def test_entries_are_created_in_the_order_of_their_topologies(cluster):
    names = ["fp32-b128-4n8g", "fp32-b64-1n1g", "fp32-b128-1n16g", "fp16-b128-1n1g"]
    do(cluster, [create(name) for name in [*names, "fp32-b128-1n8g"]])

    assert ["-".join(key) for key in read(cluster)] == [
        "fp16-b128-1n1g",
        "fp32-b64-1n1g",
        "fp32-b128-1n8g",
        "fp32-b128-1n16g",
        "fp32-b128-4n8g",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fp16-b224:\n    1n1g: {throughput: 1034.64}", "fp16-b224: {1n1g: {throughput: 1034.64}}"),
        ("1n1g: {throughput: 1034.64}", "1n1g: &one {throughput: 1034.64}"),
        ("1n1g: {throughput: 1034.64}", "1n1g: {throughput: 1e3}"),
        ("software", "1.10: yes"),
        ("\n", "\r\n"),
    ],
    ids=["in braces", "anchor", "scalars", "other scalars", "line ends"],
)
def test_an_entry_may_be_written_in_any_style(cluster, old, new):
    text = TEXT.replace(old, new)
    file = write(cluster, text)
    others = plain(read(cluster))

    do(cluster, [accept(cluster, "fp16-b224-1n1g", 1000.0), extend(cluster, "fp32-b128-1n8g")])

    now = plain(read(cluster))
    assert now["fp16-b224", "1n1g", "throughput"].accepted == 1000.0
    assert {key for key in now if now[key] != others[key]} == {
        ("fp16-b224", "1n1g", "throughput"),
        ("fp32-b128", "1n8g", "throughput"),
    }
    after = file.read_bytes().decode()
    assert after.count("\r\n") == (after.count("\n") if "\r\n" in new else 0)


def test_a_change_that_would_change_another_entry_is_refused(cluster):
    text = TEXT.replace("{throughput: 1034.64}", "&one {throughput: 1034.64}\n    1n2g: *one")
    file = write(cluster, text)

    with pytest.raises(YamlError, match="it would change what is read of fp16-b224-1n2g"):
        do(cluster, [accept(cluster, "fp16-b224-1n1g", 1000.0)])

    assert file.read_bytes().decode() == text


# ------------------------------------------------------------------- whatever the file is like

PLACES = ("fp32-b128-1n1g", "fp32-b128-1n8g", "fp32-b128-4n8g")
CHANGES = {
    "accept": lambda c, name: [accept(c, name, 777.0)],
    "accept a speedup": lambda c, name: [change_of(c, name, 7.0, "speedup")],
    "accept memory": lambda c, name: [change_of(c, name, 777.0, "peak_memory")],
    "accept both": lambda c, name: [
        accept(c, name, 777.0, machine=MACHINE),
        change_of(c, name, 7.0, "speedup", machine=MACHINE),
    ],
    "extend": lambda c, name: [extend(c, name)],
}


def change_of(cluster, name, number, metric, **more):
    """Accept a number of a metric, or create it."""
    if known(cluster, name, metric) is None:
        return create(name, number, metric, **more)
    return accept(cluster, name, number, metric, **more)


def plain(baselines):
    """Numbers by case and metric, wherever they stand."""
    return {
        (*key, name): replace(one, place="")
        for key, entry in baselines.items()
        for name, one in entry.items()
    }


COMMENTS = ["# café 😀", "      # deep", "# last"]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(PLACES)), min_size=1, max_size=4
    ),
    more=st.lists(st.sampled_from(["", "  ", *COMMENTS]), max_size=4),
    at=st.lists(st.integers(0, 48), min_size=4, max_size=4),
)
def test_any_change_leaves_all_others_and_the_comments_between_entries(cluster, steps, more, at):
    lines = TEXT.splitlines()
    for comment, line in zip(more, at, strict=False):
        # Not within the note, whose text it would become.
        if not 18 <= line <= 22:
            lines.insert(line, comment)
    file = write(cluster, "\n".join(lines) + "\n")
    for kind, name in steps:
        standing = plain(read(cluster))
        changes = CHANGES[kind](cluster, name)

        assert do(cluster, changes).done == tuple(changes)

        now = plain(read(cluster))
        for change in changes:
            key = (*change.key, change.metric.name)
            standing[key] = replace(change.now, place="")
            if not standing[key].machine:  # that of the entry, or of the cluster
                standing[key] = replace(standing[key], machine=now[key].machine)
        assert now == standing
    text = file.read_text(encoding="utf-8")
    for comment in ("# two nodes were never run", "# after it", "# the other one", "# the end"):
        assert text.count(comment) == 1


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reason=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30),
    host=st.text(st.characters(exclude_characters="\0"), max_size=8),
)
@example(reason="yes", host="1e5")
@example(reason="a: b # c\n- d", host="\x85\u2028\udcff")
@example(reason="::error::<script>" * 600, host="x" * 300)
def test_any_text_is_read_back_as_it_was(cluster, reason, host):
    write(cluster)
    launch = LaunchFacts(
        launcher=reason,
        arguments=(reason, host),
        environment={reason: reason, host: host},
        working_directory=host,
    )
    accepted = Acceptance(
        at=NIGHT,
        by=reason,
        reason=reason,
        hosts=(host, "b"),
        commits={f"/{host}": "0123"},
        launch=launch,
    )

    do(cluster, [accept(cluster, "fp32-b128-1n1g", 1.0, acceptance=accepted)])

    now = known(cluster, "fp32-b128-1n1g")
    assert (now.acceptance.reason, now.acceptance.by) == (reason, reason)
    assert now.acceptance.hosts[-1] == "b"
    told = now.acceptance.launch
    assert (told.launcher, told.arguments[0], told.environment[reason]) == (reason,) * 3
    # Half of a character is no text, and everything else is.
    assert told.working_directory == host.encode(errors="replace").decode()


# ------------------------------------------------------------------------------------ branches


def git(folder, *arguments):
    found = shutil.which("git")
    assert found is not None
    names = ["-c", "user.name=x", "-c", "user.email=x"]
    done = subprocess.run(
        [found, *names, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


LATER = replace(ACCEPTANCE, at="2026-12-01T03:00:00+00:00")
STANDING = ("1n1g", "1n2g", "1n8g", "4n8g", "8n8g")
BRANCHES = {
    "update": lambda c: [accept(c, "fp32-b128-1n2g", 120.0, acceptance=LATER)],
    "update another": lambda c: [accept(c, "fp32-b128-1n8g", 120.0, acceptance=LATER)],
    "one more metric": lambda _: [create("fp32-b128-8n8g", 13000.0, "peak_memory")],
    "extend": lambda c: [extend(c, "fp32-b128-1n1g"), extend(c, "fp32-b128-4n8g")],
    "add below": lambda _: [create("fp32-b128-1n4g"), create("fp16-b64-1n1g")],
    "add above": lambda _: [create("fp32-b128-2n8g"), create("fp64-b64-1n1g")],
}
PAIRS = list(pairwise(BRANCHES))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=[" and ".join(pair) for pair in PAIRS])
def test_branches_that_change_different_cases_merge(cluster, one, other):
    do(cluster, [create(f"fp32-b128-{topology}", 100.0) for topology in STANDING])
    folder = cluster.directory
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text(".lock\n", encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")
    keys = set()
    for branch in (one, other):
        git(folder, "checkout", "-q", "-b", branch.replace(" ", "-"), "main")
        changes = BRANCHES[branch](cluster)
        assert len(do(cluster, changes).done) == len(changes)
        git(folder, "commit", "-qam", branch)
        keys |= {change.key for change in changes}

    git(folder, "merge", "-q", "--no-edit", one.replace(" ", "-"))

    now = read(cluster)
    assert keys <= set(now)
    untouched = {("fp32-b128", name) for name in STANDING} - keys
    for key in untouched:
        assert (now[key]["throughput"].accepted, now[key]["throughput"].sessions) == (100.0, ())
    for key in keys & {("fp32-b128", "1n2g"), ("fp32-b128", "1n8g")}:
        assert now[key]["throughput"].accepted == 120.0

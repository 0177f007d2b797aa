"""What a change does to the bytes of a baseline file: its own lines change, and no other."""

import difflib
import shutil
import subprocess

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

from pytest_dlperf.baselines.reading import significant
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.measurement import LaunchFacts


@pytest.fixture
def cluster(tmp_path):
    return cluster_in(tmp_path)


def changed_lines(before, after):
    """Lines that went (``-``) and came (``+``), each with its line end."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return [
        f"{line[0]} {line[1:]}"
        for line in difflib.unified_diff(old, new, n=0)
        if line[0] in "-+" and line[:3] not in {"---", "+++"}
    ]


SOFTWARE = '{driver: "440.33.01", nccl: "2.7.3", paddlepaddle-gpu: "1.8.3"}'


def acceptance_lines(indent):
    """The lines that tell where a number comes from."""
    return [
        f"+ {indent}acceptance:\n",
        f'+ {indent}  at: "{NIGHT}"\n',
        f'+ {indent}  by: "Ana Díaz <ana@example.org>"\n',
        f'+ {indent}  commit: "0123456789abcdef0123456789abcdef01234567"\n',
        f'+ {indent}  reason: "the loader reads \\"ahead\\": 2 %"\n',
        f'+ {indent}  hosts: [node-1, "node 2"]\n',
        f"+ {indent}  software: {SOFTWARE}\n",
        f'+ {indent}  commits: {{"/opt/it\'s here": "89abcdef0123"}}\n',
        f"+ {indent}  launch:\n",
        f"+ {indent}    launcher: ssh\n",
        f"+ {indent}    command: \"python train.py --name 'it'\\\"'\\\"'s one' '' {{run}}\"\n",
        f'+ {indent}    environment: {{NCCL_DEBUG: "", OMP_NUM_THREADS: "1", PS1: " # "}}\n',
        f'+ {indent}    working_directory: "/opt/a trainer"\n',
        f'+ {indent}    options: {{image: "registry.example.org/paddle:1.8"}}\n',
    ]


SESSION = f'{{at: "{NIGHT}", runs: [360.0, 361.5, 359.25, 360.5]}}\n'
DECLARED = "  peak_memory: {better: lower, unit: MB}  # allocated\n"
ALONE = "      peak_memory: {accepted: 13000, runs: {1: 12990, 2: 13010}}\n"
NO_FURTHER_IN = (
    TEXT.replace("          - ", "        - ")
    .replace("            runs: [", "          runs: [")
    .replace("                   2631.0]", "            2631.0]")
)
EDITS = {
    "an accepted number": (
        TEXT,
        lambda c: accept(c, "fp32-b128-1n1g", 360.25001, machine=MACHINE),
        [
            "-         accepted: 352.72   # measured on a Sunday\n",
            "+         accepted: 360.25   # measured on a Sunday\n",
            "-         runs: {1: 352.0, 2: 353.44}  # two of them\n",
            "+         runs: {1: 360.0, 2: 361.5, 3: 359.25, 4: 360.5} # two of them\n",
            *acceptance_lines("        "),
            (
                '+         machine: {device: "Tesla V100-SXM2-16GB", devices_per_node: "8", '
                "interconnect: nvlink}\n"
            ),
        ],
    ),
    "what was of the old number goes with it": (
        TEXT,
        lambda c: accept(c, "fp32-b128-1n8g", 2700.0, runs={1: 2699.0, 2: 2701.0}, acceptance=None),
        [
            "-         runs:\n",
            "-           1: 2625.0   # first\n",
            "-           2: 2626.0\n",
            "-           3: 2700.0\n",
            "-         accepted: 2625.5\n",
            "-         mean:   2650.33\n",
            "-         strays: {9: 26.0}\n",
            "-         sessions:\n",
            '-           - {at: "2026-11-01T03:00:00+00:00", runs: [2620.0, 2630.0]}\n',
            "-           # the night of the storm\n",
            '-           - at: "2026-11-02T03:00:00+00:00"\n',
            "-             runs: [2621.0,\n",
            "-                    2631.0]\n",
            "+         runs: {1: 2699.0, 2: 2701.0}\n",
            "+         accepted: 2700.0\n",
            "+         mean: 2700.0\n",
        ],
    ),
    "a metric alone says itself where it comes from": (
        TEXT,
        lambda c: accept(
            c, "fp32-b128-4n8g", 25.123456789, "speedup", over=350.1, machine={"device": "old"}
        ),
        [
            "-         speedup: {accepted: 26.5, over: 352.72}\n",
            "+         speedup:\n",
            "+           accepted: 25.1235\n",
            "+           over: 350.1\n",
            *acceptance_lines("          "),
        ],
    ),
    "a new metric is declared": (
        TEXT.replace(DECLARED, "").replace(ALONE, ""),
        lambda _: create("fp32-b128-1n8g", 13000.0, "peak_memory", acceptance=None),
        [
            "+   peak_memory: {unit: MB, better: lower}\n",
            "+       peak_memory:\n",
            "+         accepted: 13000.0\n",
            "+         runs: {1: 13000.0}\n",
        ],
    ),
    "a session more": (
        TEXT,
        lambda c: extend(c, "fp32-b128-1n8g"),
        [f"+           - {SESSION}"],
    ),
    "a first session": (
        TEXT,
        lambda c: extend(c, "fp32-b128-1n1g"),
        ["+         sessions:\n", f"+           - {SESSION}"],
    ),
    "a first session of a bare number": (
        TEXT,
        lambda c: extend(c, "fp32-b128-4n8g"),
        [
            "-         throughput: 9348.17\n",
            "+         throughput:\n",
            "+           accepted: 9348.17\n",
            "+           sessions:\n",
            f"+             - {SESSION}",
        ],
    ),
    "a session where the list was emptied by hand": (
        TEXT.replace("      speedup: 1.0", "        sessions:\n      speedup: 1.0"),
        lambda c: extend(c, "fp32-b128-1n1g"),
        [f"+           - {SESSION}"],
    ),
    "a session in a list no further in than its key": (
        NO_FURTHER_IN,
        lambda c: extend(c, "fp32-b128-1n8g"),
        [f"+         - {SESSION}"],
    ),
}


@pytest.mark.parametrize(("text", "make", "lines"), EDITS.values(), ids=EDITS)
def test_a_change_changes_the_lines_that_it_must(cluster, text, make, lines):
    file = write(cluster, text)
    before, change = read(cluster), make(cluster)

    assert do(cluster, [change]).done == (change,)

    assert changed_lines(text, file.read_bytes().decode()) == lines
    now = read(cluster)[change.key]
    entry = before[change.key]
    one = now.pop(change.metric.name)
    if change.known is not None:
        assert (one.note, one.tolerance_percent) == (
            change.known.note,
            change.known.tolerance_percent,
        )
    if change.number is not None:
        assert (one.accepted, one.acceptance) == (significant(change.number), change.acceptance)
        assert (one.sessions, one.strays) == ((), {})
    else:
        assert one.sessions[-1].at == NIGHT
    # What stands beside it is read as before, wherever it stands now.
    assert {name: replace(other, place="") for name, other in now.items()} == {
        name: replace(other, place="")
        for name, other in entry.items()
        if name != change.metric.name
    }


def test_what_all_metrics_were_accepted_by_is_said_once(cluster):
    file = write(cluster)
    name, machine = "fp32-b128-4n8g", {"device": "old"}
    both = [
        accept(cluster, name, 9000.0, machine=machine),
        accept(cluster, name, 25.0, "speedup", over=350.1, machine=machine),
    ]
    for changes in (both, both[:1], both[1:]):
        do(cluster, changes)
        for change in changes:
            now = known(cluster, name, change.metric.name)
            assert (now.accepted, now.acceptance) == (change.number, ACCEPTANCE)
        if len(changes) == 2:
            at_once = file.read_bytes()
            write(cluster)

    assert file.read_bytes() == at_once
    assert at_once.count(b"acceptance:") == 1


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
        before = file.read_bytes().decode()
        change = extend(cluster, "fp32-b128-1n8g", at=f"2026-11-{night:02}T03:00:00+00:00")
        do(cluster, [change])

    now = known(cluster, "fp32-b128-1n8g")
    assert [session.at[8:10] for session in now.sessions] == [f"{day:02}" for day in range(3, 15)]
    assert len(now.rolling) == 12
    # The comment on the storm is nobody's, so it stays.
    assert changed_lines(before, file.read_bytes().decode()) == [
        '-           - at: "2026-11-02T03:00:00+00:00"\n',
        "-             runs: [2621.0,\n",
        "-                    2631.0]\n",
        '+           - {at: "2026-11-14T03:00:00+00:00", runs: [360.0, 361.5, 359.25, 360.5]}\n',
    ]


@pytest.mark.parametrize(
    ("name", "before_it", "behind_it"),
    [
        (
            "fp32-b128-1n2g",
            "      speedup: 1.0   # by definition\n    1n2g:",
            "\n\n    # two nodes were never",
        ),
        ("fp32-b128-2n8g", "        tolerance_percent: 3\n    2n8g:", "\n    # after it"),
        ("fp32-b128-8n8g", "        machine: {device: old}\n    8n8g:", "\n  # the other one"),
        ("fp16-b256-1n1g", "      throughput: 9\n  fp16-b256:\n    1n1g:", "\n# the end"),
        ("fp16-b64-1n1g", "entries:\n  fp16-b64:\n    1n1g:", "\n  # The paper's."),
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
    assert {line[0] for line in changed_lines(old, text)} == {"+"}
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
        ("sessions:\n", "sessions:   # at night\n"),
        ("1n1g: {throughput: 1034.64}", "1n1g: &one {throughput: 1034.64}"),
    ],
    ids=["in braces", "comment", "anchor"],
)
def test_an_entry_may_be_written_in_any_style(cluster, old, new):
    text = TEXT.replace(old, new)
    file = write(cluster, text)

    do(
        cluster,
        [
            accept(cluster, "fp16-b224-1n1g", 1000.0, runs={1: 1000.0}, acceptance=None),
            extend(cluster, "fp32-b128-1n8g"),
        ],
    )

    now = known(cluster, "fp16-b224-1n1g")
    assert (now.accepted, now.runs) == (1000.0, {1: 1000.0})
    after = file.read_bytes().decode()
    assert len(changed_lines(text, after)) == 3


def test_a_change_that_would_change_another_entry_is_refused(cluster):
    text = TEXT.replace("{throughput: 1034.64}", "&one {throughput: 1034.64}\n    1n2g: *one")
    file = write(cluster, text)

    with pytest.raises(
        YamlError, match="it would change what is read of fp16-b224-1n2g throughput"
    ):
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


def own_lines(text, name):
    """The indices of an entry's lines, from its key to the last one that is its own."""
    lines = text.splitlines()
    topology = name.rpartition("-")[2]
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{topology}:"))
    indent = len(lines[start]) - len(lines[start].lstrip())
    found = {start}
    for index in range(start + 1, len(lines)):
        line = lines[index]
        is_key = line.strip() and not line.strip().startswith("#")
        if is_key and len(line) - len(line.lstrip()) <= indent:
            break
        found.add(index)
    return found


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(PLACES)), min_size=1, max_size=6
    ),
    line_end=st.sampled_from(["\n", "\r\n"]),
    ends=st.booleans(),
    more=st.lists(
        st.sampled_from(["", "# \u2028 no line of ours", "      # deep", "# café 😀", "  "]),
        max_size=4,
    ),
    at=st.lists(st.integers(0, 40), min_size=4, max_size=4),
)
@example(
    steps=[("accept a speedup", "fp32-b128-4n8g"), ("accept", "fp32-b128-4n8g")],
    line_end="\n",
    ends=False,
    more=[],
    at=[0, 0, 0, 0],
)
@example(
    steps=[("extend", "fp32-b128-1n1g")], line_end="\r\n", ends=False, more=[], at=[0, 0, 0, 0]
)
def test_any_change_leaves_the_lines_of_all_others(  # noqa: PLR0913, PLR0917 - what a file may be like
    cluster,
    steps,
    line_end,
    ends,
    more,
    at,
):
    lines = TEXT.replace("# the end\n", "").splitlines()
    for comment, line in zip(more, at, strict=False):
        # Not within the note, whose text it would become.
        if not 18 <= line <= 22 and "\u2028" not in comment:
            lines.insert(line, comment)
    file = write(cluster, line_end.join(lines) + (line_end if ends else ""))
    for kind, name in steps:
        before = file.read_bytes().decode()
        standing = read(cluster)
        changes = CHANGES[kind](cluster, name)
        [key] = {change.key for change in changes}

        assert do(cluster, changes).done == tuple(changes)

        after = file.read_bytes().decode()
        assert after.count("\r\n") == (after.count("\n") if line_end == "\r\n" else 0)
        assert after.endswith(line_end) == ends
        old, new = before.splitlines(), after.splitlines()
        own_old, own_new = own_lines(before, name), own_lines(after, name)
        assert [line for i, line in enumerate(old) if i not in own_old] == [
            line for i, line in enumerate(new) if i not in own_new
        ]
        is_block = "throughput: 9348.17" not in before
        if kind == "extend" and is_block and len(standing[key]["throughput"].sessions) < 6:
            kept = iter(new)
            assert all(line in kept for line in old)
        judged = {(*key, change.metric.name) for change in changes}
        for name_of, one in plain(read(cluster)).items():
            assert name_of in judged or one == plain(standing)[name_of]


@pytest.mark.ci
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(PLACES)),
        unique_by=lambda step: step[1],
    ),
    more=st.lists(
        st.sampled_from(
            ["fp32-b128-1n2g", "fp32-b128-1n4g", "fp32-b128-8n8g", "fp16-b8-1n1g", "fp64-b8-1n1g"]
        ),
        unique=True,
    ),
)
@pytest.mark.slow
def test_changes_at_once_are_the_changes_one_by_one(cluster, steps, more):
    file = write(cluster, TEXT.replace("1n1g: {throughput: 1034.64}", "1n1g:\n      throughput: 9"))
    before = file.read_bytes()
    changes = [change for kind, name in steps for change in CHANGES[kind](cluster, name)]
    changes += [create(name, float(index + 1)) for index, name in enumerate(more)]

    assert len(do(cluster, changes).done) == len(changes)
    at_once, numbers = file.read_bytes(), plain(read(cluster))
    file.write_bytes(before)
    for change in reversed(changes):
        assert do(cluster, [change]).done == (change,)

    assert plain(read(cluster)) == numbers
    # What was said of one metric alone for a while keeps its lines.
    assert file.read_bytes() == at_once or "accept both" in {kind for kind, _ in steps}


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
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
    assert now.acceptance.reason == (reason.strip() or None)
    assert now.acceptance.by == now.acceptance.reason
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
PAIRS = [
    (one, other) for index, one in enumerate(BRANCHES) for other in list(BRANCHES)[index + 1 :]
]


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

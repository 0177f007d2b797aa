"""The documents say what is true: their tables, their links, their commands and their example."""

import json
import re
from pathlib import Path

import pytest
import yaml

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import Cluster, find_cluster
from pytest_dlperf.config.launch_keys import EVERY_SYSTEM_TAKES
from pytest_dlperf.config.settings import LaunchVariables, check_settings, resolve
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.config.template import FIELDS
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.plan import plan_run
from pytest_dlperf.model.builtin import builtin_metrics
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.work import TIMING_GROUPS
from pytest_dlperf.node.accelerators import KINDS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ADDING = ROOT / "docs" / "adding-a-system.md"
CLUSTERS = ROOT / "docs" / "clusters.md"
LOGS = ROOT / "docs" / "logs.md"
METRICS = ROOT / "docs" / "metrics.md"
SYSTEMS = ROOT / "docs" / "systems.md"
DOCUMENTS = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


def table(document, heading):
    """The rows of the first table behind a text, cell by cell, without their headings."""
    behind = document.read_text(encoding="utf-8").partition(heading)[2]
    assert behind, f"{document.name} has no {heading!r}"
    lines = re.search(r"^\|.*\n\|-.*\n((?:\|.*\n)+)", behind, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in lines[1].splitlines()]


def words(document, heading):
    """The first column of a table, without back quotes and braces."""
    return [row[0].strip("`{}") for row in table(document, heading)]


def example(name, document=ADDING):
    """The block of the document that is marked with this name."""
    pattern = rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)^```$"
    blocks = re.findall(pattern, document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1, name
    return str(blocks[0])


# ------------------------------------------------------------------- tables against the code


def test_every_built_in_metric_is_documented_and_none_else():
    rows = table(METRICS, "<!-- names: built-in metrics -->")
    assert {row[0].strip("`"): row[2] for row in rows} == {
        name: metric.better.value
        for name, metric in builtin_metrics("images/s").items()
        if metric.better is not None
    }


def test_the_metrics_that_are_shown_can_be_read(tmp_path):
    file = tmp_path / "system.yaml"
    file.write_text(example("metrics", METRICS), encoding="utf-8")
    (system,) = load_systems([file], BUILTIN_FORMATS).values()
    assert {metric.name for metric in system.metrics if metric.is_judged} == {
        "throughput", "speedup", "loss", "peak_memory", "step_time_p95",
    }  # fmt: skip


def test_every_placeholder_of_a_launch_is_documented_and_none_else():
    rows = table(ADDING, "<!-- names: placeholders -->")
    named = [name for row in rows for name in re.findall(r"`{(\w+)}`", row[0])]
    assert sorted(named) == sorted(FIELDS)


def test_what_every_system_takes_is_documented():
    assert words(ADDING, "<!-- names: set for every system -->") == list(EVERY_SYSTEM_TAKES)


def test_the_kinds_of_accelerators_and_their_variables_are_listed():
    rows = table(CLUSTERS, "<!-- names: kinds of accelerators -->")
    named = [(row[0].strip("`"), re.findall(r"`(\w+)`", row[2])) for row in rows]
    assert named == [
        (kind.name, [kind.variables[0], *filter(None, [kind.outer])]) for kind in KINDS
    ]


def system_with(launch, folder):
    """A system with the launch that is written in an example."""
    whole = {
        "framework": "a",
        "model": "b",
        "unit": "samples/s",
        "log": {"name": "a", "format": "dlperf"},
        "window": {"warmup_steps": 1, "measured_steps": 1},
        "cases": [
            {
                "precision": "fp32",
                "batch_per_device": 8,
                "options": ["dali"],
                "topologies": ["2n4g"],
            },
        ],
        **yaml.safe_load(launch),
    }
    file = folder / "system.yaml"
    file.write_text(json.dumps(whole), encoding="utf-8")
    return load_systems([file], BUILTIN_FORMATS)["a-b"]


@pytest.mark.parametrize("name", ["json", "file", "facts"])
def test_the_examples_of_formats_can_be_read(name, tmp_path):
    said = yaml.safe_load(example(name, LOGS))
    keys = said if "log" in said else {"log": {"name": "own", **said}}
    assert system_with(json.dumps(keys), tmp_path).log_format.name == "system"


@pytest.mark.parametrize("name", ["where cases differ", "what a system needs"])
def test_the_examples_of_a_launch_can_be_read(name, tmp_path):
    assert system_with(example(name), tmp_path).launch is not None


def test_the_example_of_a_cluster_sets_what_the_example_of_a_system_needs(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "cluster.yaml").write_text(example("what a cluster sets"))
    cluster = find_cluster(tmp_path, "ours")
    spec = system_with(example("what a system needs"), tmp_path).launch
    assert spec is not None
    assert not list(check_settings({"pytorch-resnet50": spec}, cluster.settings))
    assert resolve(spec, "pytorch-resnet50", [cluster.settings]) == LaunchVariables(
        values={"checkout": "/home/me/examples/imagenet", "shards": "8"},
        extra_args=("--seed", "1"),
        env={"NCCL_SOCKET_IFNAME": "ib0"},
        python="/opt/conda/bin/python",
    )


def test_the_variables_of_the_shipped_systems_are_documented():
    systems = load_systems(sorted(ROOT.glob("bench_tests/systems/*.yaml")), BUILTIN_FORMATS)
    rows = table(SYSTEMS, "<!-- names: variables of the shipped systems -->")
    assert {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in rows} == {
        name: list(system.launch.variables)
        for name, system in systems.items()
        if system.launch is not None and system.launch.variables
    }


def test_the_launch_on_a_head_node_is_one_command_for_all_nodes(tmp_path):
    system = system_with(example("head node"), tmp_path)
    assert system.launch is not None
    (command,) = plan_run(
        system.launch,
        case=system.cases[0],
        window=system.window,
        settling_steps=0,
        system_directory=tmp_path,
        run=1,
        nodes=[
            Node(
                host=Host(name=f"h{rank}", address=address),
                port=1,
                first_port=1,
                device_ids=(0, 1, 2, 3),
                folder="/s",
            )
            for rank, address in enumerate(("10.0.0.1", "fd00::2"))
        ],
        variables=LaunchVariables(),
        python="python3",
        log=tmp_path / "a.log",
    )
    assert " ".join(command.arguments) == (
        "mpirun --np 8 -H 10.0.0.1:4,[fd00::2]:4 -x CUDA_VISIBLE_DEVICES python3 train.py --batch=8"
    )
    assert (command.host, command.environment) == ("h0", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})


def test_every_log_format_and_group_is_documented_and_none_else():
    assert words(LOGS, "<!-- names: log formats -->") == list(BUILTIN_FORMATS)
    groups = ["step", "epoch", "rank", *TIMING_GROUPS]
    assert words(LOGS, "<!-- names: groups -->") == groups


def test_settling_steps_are_documented():
    document = " ".join(ADDING.read_text(encoding="utf-8").split())
    shifted = {f.name: f.settling_steps for f in BUILTIN_FORMATS.values() if f.settling_steps}
    sentence = ", ".join(f"`{name}` by {steps}" for name, steps in shifted.items())
    assert f"shift the window by steps that their trainers need to settle: {sentence}." in document


# ------------------------------------------------------------------------ commands and links


@pytest.mark.parametrize("name", ["main-job", "tests-command"])
def test_the_readme_has_each_command_once(name):
    text = README.read_text(encoding="utf-8")
    assert text.count(f"<!-- {name} -->") == 1
    block = re.search(rf"<!-- {name} -->\n```sh\n(.+)\n```\n", text)
    assert block is not None, f"no block of one line follows <!-- {name} -->"
    assert ".venv/bin/pytest" in block[1]


def test_the_system_file_of_the_readme_is_whole(tmp_path):
    """With the metrics that it shows beside it."""
    shown = re.findall(r"^```yaml\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    file = tmp_path / "own.yaml"
    file.write_text("".join(shown), encoding="utf-8")
    (system,) = load_systems([file], BUILTIN_FORMATS).values()
    assert [str(case) for case in system.cases] == [
        f"torchtitan-llama3_8b-bf16-gb64-s8192-{topology}" for topology in ("1n8g", "4n8g")
    ]


def prose(document):
    """A document without its blocks of code."""
    text = document.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(document):
    """The names that a document's headings have in links."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_files_that_the_documents_name_exist(document):
    names = re.findall(
        r"(?<![\w/.])((?:tests|benchmarks|pytest_dlperf|docs|\.ci)/[\w./-]*\w)",
        document.read_text(encoding="utf-8"),
    )
    for name in names:
        assert (ROOT / name).exists(), f"{document.name} names {name}"


# --------------------------------------------------------------------------- baselines


def test_the_baseline_file_that_is_shown_can_be_read(tmp_path):
    text = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
    block = re.search(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    name = yaml.safe_load(block[1])["system"]
    (tmp_path / f"{name}.yaml").write_text(block[1], encoding="utf-8")
    cluster = Cluster(name="shown", directory=tmp_path, estimator=Estimator.STEADY)

    (baselines,) = load_baselines(cluster, name).values()

    assert len(baselines) > 1
    assert any(baseline.sessions for baseline in baselines.values())
    assert all(baseline.machine for baseline in baselines.values())

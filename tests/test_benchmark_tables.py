"""The tables of the original benchmark: its figures to the last digit, and nothing made up."""

import json
from pathlib import Path

import log_makers
import pytest
import results_makers as make
import yaml
from msgspec.structs import replace
from nights import Nights

from pytest_dlperf.model.case import SINGLE_DEVICE, Case, Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator, RunStatus
from pytest_dlperf.report.benchmark_tables import write_tables

pytestmark = pytest.mark.in_process

ROOT = Path(__file__).resolve().parent.parent
CLUSTER = ROOT / "baselines" / "dlperf-v100"
PUBLISHED = yaml.safe_load(
    (Path(__file__).parent / "data" / "published_tables.yaml").read_text(encoding="utf-8")
)
# The trainings whose runs the benchmark's documents list, each with the name of its logs.
WITH_RUNS = {
    "paddle-resnet50": ("fp32-b128", "r50"),
    "ngc_pytorch-resnet50": ("fp32-b128", "r50"),
    "pytorch-resnet50": ("fp32-b128-dali+workers8", "r50"),
    "paddle-arcface_r50": ("fp32-b128", "r50"),
    "tensorflow-bert_base": ("fp32-b64", "bert"),
}
HEADINGS = {
    "ngc_pytorch-resnet50": [
        "gpu_num_per_node", "batch_size_per_device", "samples/s(PyTorch)", "speedup",
    ],
    "pytorch-resnet50": [
        "node_num", "gpu_num_per_node", "batch_size_per_device", "samples/s(PyTorch)", "speedup",
    ],
}  # fmt: skip


def printed_runs(system):
    """The runs that a document prints, by topology, strays that it counted among them."""
    variant, _ = WITH_RUNS[system]
    text = (CLUSTER / f"{system}.yaml").read_text(encoding="utf-8")
    entries = yaml.safe_load(text)["entries"][variant]
    return {
        topology: {**entry["throughput"]["runs"], **entry["throughput"].get("strays", {})}
        for topology, entry in entries.items()
    }


def cells(page, heading):
    """The rows of the table below a heading, without its own two."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def published(system):
    """The session of a document: its printed runs, measured as it defined them."""
    variant, log_name = WITH_RUNS[system]
    cases = []
    for topology, runs in printed_runs(system).items():
        case = make.measured_case(
            f"{system}-{variant}-{topology}", *runs.values(), estimator=Estimator.PUBLISHED
        )
        single = cases[0].measurement if cases else case.measurement
        cases.append(replace(case, reference=single))
    results = make.session(*cases, estimator=Estimator.PUBLISHED)
    return replace(results, log_names={system: log_name})


@pytest.mark.parametrize("system", WITH_RUNS)
def test_the_printed_runs_give_the_printed_figures(tmp_path, system):
    variant, log_name = WITH_RUNS[system]
    case, printed = Case.from_id(f"{system}-{variant}-1n1g"), PUBLISHED[system][variant]

    write_tables(tmp_path, published(system))

    assert read(tmp_path / system / f"{variant}_result.json") == {
        log_name: {
            topology: {
                "average_speed": average,
                "batch_size_per_device": case.batch_per_replica,
                "median_speed": median,
                "speedup": speedup,
            }
            for topology, (median, speedup, average) in printed.items()
        }
    }
    options = f", {', '.join(case.options)}" if case.options else ""
    page = (tmp_path / f"{system}.md").read_text(encoding="utf-8")
    headings, _, *rows = cells(
        page, f"{case.precision}, batch size per device {case.batch_per_replica}{options}"
    )
    assert headings == HEADINGS.get(system, ["node_num", "gpu_num", "samples/s", "speedup"])
    for row, topology in zip(rows, printed, strict=True):
        of = SINGLE_DEVICE.parse(topology)
        *places, median, speedup = map(float, row)
        named = {
            "node_num": of.nodes,
            "gpu_num": of.world_size,
            "gpu_num_per_node": of.devices_per_node,
            "batch_size_per_device": case.batch_per_replica,
        }
        assert places == [named[heading] for heading in headings[:-2]]
        assert [median, speedup] == printed[topology][:2]
    assert rows[0][-1] == ("1.00" if system in HEADINGS else "1")


def test_a_second_node_is_counted_where_the_original_had_one_only(tmp_path):
    write_tables(
        tmp_path,
        make.session(
            make.measured_case("ngc_pytorch-resnet50-fp32-b128-1n8g", 2800.0),
            make.measured_case("ngc_pytorch-resnet50-fp32-b128-2n8g", 5500.0),
        ),
    )

    page = (tmp_path / "ngc_pytorch-resnet50.md").read_text(encoding="utf-8")
    headings, _, *rows = cells(page, "fp32, batch size per device 128")
    assert headings == HEADINGS["pytorch-resnet50"]
    assert [row[:3] for row in rows] == [["1", "8", "128"], ["2", "8", "128"]]


def test_logs_of_the_printed_runs_give_the_printed_figures(suite):
    """Of logs whose times are fine enough to have any throughput."""
    system = "tensorflow-bert_base"
    variant, log_name = WITH_RUNS[system]
    stem = f"{log_name}_b64_fp32"
    for topology, runs in printed_runs(system).items():
        case = Case.from_id(f"{system}-{variant}-{topology}")
        for run, throughput in runs.items():
            log = suite.path / "logs" / topology / f"{stem}_{run}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            text = log_makers.tf_models_bert([case.global_batch / throughput] * 121)
            log.write_text(text, encoding="utf-8")

    result = suite.run(
        "--dlperf-cluster", "dlperf-v100", "--dlperf-logs", f"{system}=logs",
        "-k", f"{system}-{variant}", "--dlperf-tables", "tables",
    )  # fmt: skip

    assert result.ret == 0
    result.stdout.fnmatch_lines(["tables: *tables"])
    found = read(suite.path / "tables" / system / f"{variant}_result.json")[log_name]
    assert {
        topology: [entry["median_speed"], entry["speedup"], entry["average_speed"]]
        for topology, entry in found.items()
    } == PUBLISHED[system][variant]
    page = (suite.path / "tables" / f"{system}.md").read_text(encoding="utf-8")
    assert page.split("```text\n")[1].split("\n```")[0].splitlines() == [
        f"{suite.path}/logs/{topology}/{stem}_{last}.log "
        f"{ {run: runs[run] for run in sorted(runs) if run <= last} }"
        for topology, runs in printed_runs(system).items()
        for last in sorted(runs)
    ]


def tables_of(folder, *cases):
    """The page and the result of the one training that the cases are of."""
    results = replace(make.session(*cases), log_names={"paddle-resnet50": "r50"})
    write_tables(folder, results)
    file = folder / "paddle-resnet50" / "fp32-b128_result.json"
    page = (folder / "paddle-resnet50.md").read_text(encoding="utf-8")
    return page, read(file)["r50"]


def test_a_broken_case_is_no_number(tmp_path):
    page, found = tables_of(
        tmp_path,
        make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0, speedup=1.0),
        make.measured_case(
            "paddle-resnet50-fp32-b128-1n8g", 2600.0, 2610.0,
            broken=[RunStatus.FAILED], verdict=Verdict.FAILED,
        ),
    )  # fmt: skip

    assert set(found) == {"1n1g"}
    _, _, *rows = cells(page, "fp32, batch size per device 128")
    assert rows == [["1", "1", "350.00", "1"], ["1", "8", "-", "-"]]


@pytest.mark.parametrize("broken", [[], [RunStatus.HUNG]], ids=["absent", "broken"])
def test_without_one_device_there_is_no_speedup(tmp_path, broken):
    cases = [make.measured_case("paddle-resnet50-fp32-b128-1n8g", 2600.0)]
    if broken:
        cases.append(make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0, broken=broken))

    page, found = tables_of(tmp_path, *cases)

    assert found == {
        "1n8g": {
            "average_speed": 2600.0,
            "batch_size_per_device": 128,
            "median_speed": 2600.0,
            "speedup": None,
        }
    }
    assert cells(page, "fp32, batch size per device 128")[-1] == ["1", "8", "2600.00", "-"]


def test_what_was_not_measured_has_no_row(tmp_path):
    page, found = tables_of(
        tmp_path,
        make.measured_case("paddle-resnet50-fp32-b128-1n1g", 350.0, speedup=1.0),
        make.unmeasured_case("paddle-resnet50-fp32-b128-4n8g", Verdict.SKIPPED, "no hosts"),
    )

    assert set(found) == {"1n1g"}
    assert len(cells(page, "fp32, batch size per device 128")) == 3


def test_one_device_that_was_measured_for_a_speedup_alone_has_its_row(tmp_path):
    _, found = tables_of(
        tmp_path, make.measured_case("paddle-resnet50-fp32-b128-1n2g", 600.0, speedup=1.5)
    )
    assert {topology: entry["speedup"] for topology, entry in found.items()} == {
        "1n1g": 1.0, "1n2g": 1.5
    }  # fmt: skip


def test_nothing_stands_for_what_was_not_measured(suite):
    """No file at all, and none of an earlier session that still says something."""
    arguments = ["--dlperf-cluster", "local", "--dlperf-tables", "tables"]
    tables = suite.path / "tables"
    nights = Nights(suite)
    first = nights.usual("monday")
    suite.run("-k", "paddle", *arguments)
    assert not tables.exists()
    suite.run(*first, *arguments)
    file = tables / "tiny-mlp" / "fp32-b4_result.json"
    assert set(read(file)["mlp"]) == {"1n1g", "1n2g"}
    # Logs of another system: nothing of this one is measured.
    empty = nights.night("tuesday", {})
    stray = suite.path / "nights" / "tuesday" / "stray.log"
    stray.parent.mkdir(parents=True)
    stray.touch()

    suite.run(*empty, *arguments)

    assert read(file) == {"mlp": {}}
    assert "Nothing of it was measured." in (tables / "tiny-mlp.md").read_text(encoding="utf-8")


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def test_speedups_are_over_any_reference_and_a_global_batch_is_shared(
    tmp_path,
):
    over, case = (
        replace(
            make.measured_case(f"paddle-resnet50-fp32-gb256-s512-{topology}", level),
            case=replace(
                Case.from_id(f"paddle-resnet50-fp32-gb256-s512-{topology}"),
                reference_topology=Topology(1, 8),
            ),
        )
        for topology, level in (("1n8g", 2600.0), ("4n8g", 9100.0))
    )
    results = make.session(replace(case, reference=over.measurement))
    write_tables(tmp_path, results)

    page = (tmp_path / "paddle-resnet50.md").read_text(encoding="utf-8")
    assert cells(page, "fp32, gb256-s512")[2:] == [
        ["1", "8", "2600.00", "1"], ["4", "32", "9100.00", "3.50"]
    ]  # fmt: skip
    file = tmp_path / "paddle-resnet50" / "fp32-gb256-s512_result.json"
    found = read(file)["paddle-resnet50"]
    assert [entry["batch_size_per_device"] for entry in found.values()] == [32, 8]

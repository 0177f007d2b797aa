"""The reports of one session say the same of a case, by the same names."""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from nights import Nights

if TYPE_CHECKING:
    from suites import Suite

ONE, TWO = "tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g"


@pytest.mark.usefixtures("with_benchmark")
def test_machine_readable_reports_have_one_word_for_a_number(suite: Suite) -> None:
    """With pooled sessions the reference is another number than the accepted one."""
    nights = Nights(suite)
    nights.accept(*(nights.numbers(f"accepted {night}") for night in range(6)))
    night = nights.usual("tonight", of_1n2g=0.9)
    suite.run(*night, "--junitxml=junit.xml", "--benchmark-json=b.json", "--dlperf-json=r.json")

    cases = json.loads((suite.path / "r.json").read_text(encoding="utf-8"))["cases"]
    benchmarks = json.loads((suite.path / "b.json").read_text(encoding="utf-8"))["benchmarks"]
    extras = {benchmark["param"]: benchmark["extra_info"] for benchmark in benchmarks}
    root = ET.parse(suite.path / "junit.xml").getroot()  # noqa: S314 - pytest has written it
    tests = {
        element.get("name"): {p.get("name"): p.get("value") for p in element.iter("property")}
        for element in root.iter("testcase")
    }
    with closing(sqlite3.connect(suite.path / ".dlperf" / "history.sqlite3")) as history:
        history.row_factory = sqlite3.Row
        rows = history.execute(
            "SELECT * FROM measurements JOIN cases ON cases.id = measurements.case_id"
        ).fetchall()
    stored = {row["name"]: row for row in rows}
    assert {case["id"] for case in cases} == set(extras) == set(stored) == {ONE, TWO}

    for case in cases:
        extra, row = extras[case["id"]], stored[case["id"]]
        for quantity, prefix in (("throughput", ""), ("speedup", "speedup_")):
            gate = case["gate"][quantity]
            if gate is None:
                continue
            gate |= gate.pop("decision")
            accepted, reference = gate["accepted"], gate["reference"]
            assert accepted != reference, "sessions are pooled"
            assert accepted == case["accepted"][quantity] == extra["accepted"][quantity]
            assert reference == extra["reference"][quantity] == row[f"{prefix}reference"]
            assert accepted == row["accepted" if quantity == "throughput" else "accepted_speedup"]
            assert case["verdict"][quantity] == gate["verdict"] == extra["verdict"][quantity]
            assert gate["verdict"] == row[f"{prefix}verdict"]
            told = tests[f"test_{quantity}[{case['id']}]"]
            assert told["dlperf.verdict"] == gate["verdict"]
            for name in ("accepted", "reference", "difference_percent"):
                assert float(str(told[f"dlperf.{name}"])) == pytest.approx(gate[name], rel=1e-9)
            assert gate["difference_percent"] == row[f"{prefix}difference_percent"]
        assert case["throughput"]["median"] == extra["throughput"] == row["median"]
        assert case["speedup"] == extra["speedup"] == row["speedup"]

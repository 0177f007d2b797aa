"""The reports of one session say the same of a case, by the same names."""

import json
import sqlite3
import xml.etree.ElementTree as ET
from contextlib import closing

import pytest
from nights import Nights

pytestmark = pytest.mark.in_process

ONE, TWO = "tiny-mlp-fp32-b4-1n1g", "tiny-mlp-fp32-b4-1n2g"


@pytest.mark.usefixtures("with_benchmark")
def test_machine_readable_reports_have_one_word_for_a_number(suite):
    """With pooled sessions the reference is another number than the accepted one."""
    nights = Nights(suite)
    nights.accept(*(nights.numbers(f"accepted {night}") for night in range(6)))
    night = nights.usual("now", of_1n2g=0.9)
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
        stored = history.execute(
            "SELECT cases.name, measurements.* FROM measurements "
            "JOIN cases ON cases.id = measurements.case_id"
        ).fetchall()
    rows = {(row["name"], row["metric"]): row for row in stored}
    assert {case["id"] for case in cases} == set(extras) == {ONE, TWO}
    # Of what logs do not have, such as the time of the first step, nothing is stored.
    assert set(rows) == {
        (case["id"], name)
        for case in cases
        for name, entry in case["metrics"].items()
        if entry["median"] is not None
    }

    for case in cases:
        extra = extras[case["id"]]
        for name, entry in case["metrics"].items():
            if entry["median"] is None:
                continue
            gate, row = case["judgements"].get(name), rows[case["id"], name]
            assert entry == extra["metrics"][name]
            for key in ("unit", "better", "median", "accepted", "reference", "difference_percent"):
                assert row[key] == entry[key]
            assert row["verdict"] == entry["verdict"]
            if gate is None and entry["median"] is None:
                continue  # no log has it, and no test looks for it
            # What no test judges stands with the first metric's.
            told = tests[f"test_{name if gate else 'throughput'}[{case['id']}]"]
            if gate is not None:
                assert told["dlperf.verdict"] == gate["verdict"] == entry["verdict"]
            for key, value in entry.items():
                text = told.get(f"dlperf.{name}.{key}")
                if isinstance(value, float):
                    assert float(str(text)) == pytest.approx(value, rel=1e-9)
                else:
                    assert text == value

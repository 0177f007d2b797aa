"""The reports of ``examples/`` send what was measured whole, and call nothing else good."""

from __future__ import annotations

import sys
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Any

import pytest
import results_makers as make

from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.report.reports import Report
from pytest_dlperf.report.session import session_report

EXAMPLES = Path(__file__).parent.parent / "examples"
GOOD, BROKEN, LOST = (f"tiny-mlp-fp32-b{batch}-1n1g" for batch in (4, 8, 16))


def night():
    results = make.session(
        make.measured_case(GOOD, 90.0, 91.0, 92.0, verdict=Verdict.PASS, baseline=100.0),
        make.measured_case(BROKEN, 70.0, broken=[RunStatus.HUNG], verdict=Verdict.HUNG),
        make.unmeasured_case(LOST, Verdict.FAILED, "no host"),
        cluster="lab",
    )
    return session_report(results)


def report(name):
    """The report that a file of ``examples/`` adds."""
    [found] = run_path(str(EXAMPLES / f"{name}.py"))["pytest_dlperf_reports"]()
    assert isinstance(found, Report)
    return found


class Called:
    """Notes what is called of a package that no test installs: it was tried with the real one."""

    def __init__(self):
        self.calls: list[tuple[str, Any]] = []
        self.project, self.name = "dlperf", "now"

    def __getattr__(self, name):
        def call(*values, **named):
            self.calls.append((name, values[0] if values else named))
            return self

        call.update = lambda data: self.calls.append((name, data))
        return call


@pytest.fixture
def called(request, monkeypatch):
    found = Called()
    module = ModuleType(request.param)
    module.__getattr__ = found.__getattr__
    monkeypatch.setitem(sys.modules, request.param, module)
    return found


@pytest.mark.parametrize("called", ["mlflow"], indirect=True)
def test_mlflow_gets_a_run_for_each_case(called):
    notes = [note.text for note in report("report_mlflow").write(night())]
    assert notes == [f"MLflow run: {case}" for case in (GOOD, BROKEN, LOST)]
    metrics = [data for name, data in called.calls if name == "log_metrics"]
    assert metrics[0]["throughput"] == 91.0
    assert metrics[1:] == [{}, {}]
    assert [one for name, one in called.calls if name == "end_run"] == ["FINISHED", *["FAILED"] * 2]
    tags = [data for name, data in called.calls if name == "set_tags"]
    assert [one.get("verdict.throughput") for one in tags[1::2]] == ["pass", "hung", "failed"]


@pytest.mark.parametrize("called", ["wandb"], indirect=True)
def test_wandb_gets_a_run_for_the_session(called):
    list(report("report_wandb").write(night()))
    calls = dict(called.calls)
    assert calls["init"]["group"] == "lab"
    assert calls["log"][f"{GOOD}/throughput"] == 91.0
    assert {name.partition("/")[0] for name in calls["log"]} == {GOOD}
    assert calls["summary"][f"{BROKEN}/throughput.verdict"] == "hung"
    assert calls["finish"] == {"exit_code": 1}

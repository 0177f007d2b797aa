"""What the tests that run pytest itself share: a copy of the shipped suite to play with."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from suites import Suite

ROOT = Path(__file__).parent.parent


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A copy of ``bench_tests`` and of the published baselines."""
    # Byte code is cached, as it is for users: the suites of all tests start the same modules.
    for name in (
        "DLPERF_CLUSTER",
        "DLPERF_STRICT",
        "PYTHONDONTWRITEBYTECODE",
    ):
        monkeypatch.delenv(name, raising=False)
    # Hypothesis is for the tests around; its plugin takes a second of every session.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    # The lock by which sessions take turns on a machine lies there: tests have one each.
    temporary = pytester.path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    shutil.copytree(
        ROOT / "bench_tests",
        pytester.path / "bench_tests",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copytree(ROOT / "baselines" / "dlperf-v100", pytester.path / "baselines/dlperf-v100")
    # Strict as the project itself is: a warning of ours would fail here.
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    return Suite(pytester)


@pytest.fixture(params=["alone", "two workers"])
def workers(request: pytest.FixtureRequest) -> list[str]:
    """The arguments for running in one process and with xdist: all must come out the same."""
    return [] if request.param == "alone" else ["-n", "2"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip real trainings where PyTorch is missing; CI installs it, so there they run or fail."""
    if find_spec("torch") is not None or os.environ.get("CI") == "true":
        return
    skip = pytest.mark.skip(reason="needs PyTorch: pip install -e '.[smoke]'")
    for item in items:
        if item.get_closest_marker("training") is not None:
            item.add_marker(skip)

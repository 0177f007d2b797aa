"""One run of `bisect`: a session that measures one case as a candidate has it, and reports nothing.

``pytest -p pytest_dlperf.plugin.candidate --candidate-order FILE …`` is started by
``culprit.trial`` with the arguments of the user's own sessions.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import json

from pytest_dlperf.culprit.trial import TrialOrder, options_reset
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.plugin.cases import MEASURING, case_of
from pytest_dlperf.plugin.workers import end_with_controller


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the file with the order."""
    parser.addoption("--candidate-order", metavar="FILE", help=argparse.SUPPRESS)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Run in one process, write no report of the user's, and end with the search."""
    option = config.option
    option.numprocesses, option.tx, option.dist, option.maxschedchunk = None, [], "no", 1
    option.xmlpath = None
    for declared in options_reset():
        setattr(option, declared.key, None)
    end_with_controller()
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select one test that measures the case, and launch the candidate."""
    order = json.decode(Path(config.getoption("--candidate-order")).read_bytes(), type=TrialOrder)
    known: dict[str, pytest.Item] = {}
    for item in items:
        about = case_of(item)
        # A test of a speedup measures another case as well.
        if about is not None and "dlperf_case" in item.callspec.params:  # type: ignore[attr-defined]
            known.setdefault(about[0].id, item)
    if order.case_id not in known:
        there_are = f"; there are: {', '.join(known)}" if known else ""
        hint = nearest(order.case_id, known) or there_are
        raise pytest.UsageError(f"no test measures the case {order.case_id}{hint}")
    items[:] = [known[order.case_id]]
    measuring = config.stash[MEASURING]
    if measuring.launcher is None:
        raise pytest.UsageError("with --dlperf-logs nothing is launched; leave it out of a search")
    measuring.launcher = replace(measuring.launcher, change=order.change)

"""Logs that exist, judged by a system file as ``--dlperf-logs`` does."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.systems import load_systems
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.launch.plan import node_log
from pytest_dlperf.logs.tree import LogSource, index_logs, log_path
from pytest_dlperf.measure.from_logs import LogMeasurer
from pytest_dlperf.model.measurement import Run


def judged(system_file: Path, *logs: str | Path) -> Run:
    """What becomes of a run of the file's only case, by a log or a file of each node."""
    systems = load_systems([system_file], BUILTIN_FORMATS)
    [system] = systems.values()
    [wanted] = system.cases
    folder = system_file.parent / "logs"
    main = log_path(folder, wanted, system.log_name, 1)
    for node, content in enumerate(logs):
        place = node_log(main, node)
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copy(content, place)
        else:
            place.write_text(content, encoding="utf-8")
    source = LogSource(wanted.system, None, folder)
    index = index_logs(source, log_name=system.log_name, cases=[wanted])
    cluster = Cluster(name="mine", directory=system_file.parent)
    measurer = LogMeasurer(index, systems, cluster)
    [run] = measurer.measure(wanted).runs
    return run

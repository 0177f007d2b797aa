"""Write the results file: a session as JSON for machines."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_dlperf.files.locks import write_whole
from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.model.plain import to_plain
from pytest_dlperf.results.decode import SCHEMA, CaseEntry

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results


def write_json(file: Path, results: Results) -> None:
    """Write the results file of a session."""
    write_whole(file, json.dumps(encode(results), indent=2, allow_nan=False) + "\n")


def encode(results: Results) -> dict[str, Any]:
    """Turn results into builtins, in the form of ``schema.json``."""
    plain: dict[str, Any] = to_plain(replace(results, cases=()))
    for unsaid in ("units", "log_names"):
        del plain[unsaid]
    return {
        "schema": SCHEMA,
        **plain,
        "cases": [_entry(result, results.unit_of(result)) for result in results.cases],
        "single_devices": list(map(to_plain, _single_devices(results.cases))),
        "baseline_changes": [
            {**to_plain(change), "difference_percent": change.difference_percent}
            for change in results.baseline_changes
        ],
    }


def _single_devices(results: Iterable[CaseResult]) -> tuple[Measurement, ...]:
    results = list(results)
    selected = {result.case.id for result in results}
    found = {
        result.case.single_device.id: result.single_device
        for result in results
        if result.single_device is not None
    }
    return tuple(single for case_id, single in found.items() if case_id not in selected)


def _entry(result: CaseResult, unit: str | None) -> dict[str, Any]:
    measured = result.measurement
    spread = measured.spread if measured else None
    entry = CaseEntry(
        id=result.case,
        unit=unit,
        runs=measured.runs if measured else (),
        speedup=result.speedup,
        accepted=result.accepted,
        gate={quantity: result.judgements.get(quantity) for quantity in Quantity},
        fingerprint=measured.fingerprint if measured else None,
        available_runs=measured.available_runs if measured else None,
        whole=result.is_whole,
        unfinished=result.unfinished,
        interleaved=result.interleaved,
    )
    verdicts = {quantity.value: result.verdict(quantity) for quantity in Quantity}
    return {
        "id": result.case.id,
        **result.case.axes(),
        "options": list(result.case.options),
        "throughput": {
            "median": measured.median if measured else None,
            "mean": measured.mean if measured else None,
            "spread": None if spread is None else round(spread, 3),
        },
        "verdict": {name: verdict.value if verdict else None for name, verdict in verdicts.items()},
        **to_plain(entry),
    }

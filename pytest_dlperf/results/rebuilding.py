"""From what a results file holds to the values it was written from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.changes import BaselineChange
from pytest_dlperf.model.fingerprint import Fingerprint
from pytest_dlperf.model.judgement import Judgement, Quantity
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement, Run
from pytest_dlperf.model.records import AcceptedNumbers, CaseResult
from pytest_dlperf.model.results import IgnoredLog, Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST_VALUE: Final = 60
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class FormError(Exception):
    """What a results file says cannot be; the message names the place in it."""


def where(path: Iterable[str | int]) -> str:
    """A place as JSON paths write it: ``$.cases[3].runs[0].throughput``."""
    parts = [
        f".{part}" if isinstance(part, str) and _KEY.fullmatch(part) else f"[{shown(part)}]"
        for part in path
    ]
    return "".join(["$", *parts])


def shown(value: Any) -> str:
    """A value in short and on one line, whatever it holds."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value).replace("\x7f", "\\u007f")
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def rebuild(plain: dict[str, Any], *, instead_of_session: str) -> Results:
    """The results that a file was written from.

    ``plain`` keeps to the schema; ``instead_of_session`` is for files that have no session's id.

    Raises:
        FormError: It contradicts itself: a case stands in it twice, or is another than its id.
    """
    estimator = Estimator(plain["estimator"])
    results: dict[str, CaseResult] = {}
    units: dict[str, str] = {}
    for index, item in enumerate(plain["cases"]):
        result = _case_result(item, estimator, index)
        if result.case.id in results:
            raise FormError(
                f"$.cases[{index}].id: {result.case.id} stands in the file twice; "
                "each case has one entry"
            )
        results[result.case.id] = result
        if item["unit"] is not None:
            units[result.case.system] = item["unit"]
    references = _references(plain.get("references", ()), results)
    for result in results.values():
        single = results.get(result.case.single_device.id)
        result.single_device = (
            references.get(result.case.single_device.id) if single is None else single.measurement
        )
    changes = plain.get("baseline_changes", ())
    return Results(
        session=plain.get("session", instead_of_session),
        cluster=plain["cluster"],
        estimator=estimator,
        started=plain["started"],
        ended=plain.get("ended"),
        interrupted=plain.get("interrupted", False),
        strict=plain.get("strict", False),
        environment=plain["environment"],
        units=units,
        cases=tuple(results.values()),
        unfit_hosts={host: tuple(faults) for host, faults in plain.get("unfit_hosts", {}).items()},
        ignored_logs=tuple(
            IgnoredLog(log=item["log"], reason=item["reason"]) for item in plain["ignored_logs"]
        ),
        baseline_changes=tuple(map(BaselineChange.from_plain, changes)),
    )


def _references(
    items: Iterable[dict[str, Any]], results: Mapping[str, CaseResult]
) -> dict[str, Measurement]:
    """The single devices that no test was selected of, by case."""
    found: dict[str, Measurement] = {}
    for index, item in enumerate(items):
        case_id = item["case_id"]
        if case_id in results or case_id in found:
            raise FormError(
                f"$.references[{index}].case_id: {shown(case_id)} stands in the file twice; each "
                "case has one entry"
            )
        found[case_id] = Measurement.from_plain(item)
    return found


def _case_result(item: dict[str, Any], estimator: Estimator, index: int) -> CaseResult:
    place = f"$.cases[{index}]"
    case = _case(item, place)
    accepted = item["baseline"]
    both = item.get("interleaved")
    result = CaseResult(
        case=case,
        measurement=_measurement(item, estimator, case, place),
        interleaved=InterleavedRuns.from_plain(both) if both else None,
        is_whole=item.get("whole", True),
        unfinished=tuple(map(Quantity, item.get("unfinished", ()))),
        speedup=item["speedup"],
        accepted=AcceptedNumbers.from_plain(accepted) if accepted else None,
    )
    for quantity in Quantity:
        judgement = _judgement(item, quantity)
        if judgement is not None:
            result.judgements[quantity] = judgement
    return result


def _case(item: dict[str, Any], place: str) -> Case:
    try:
        case = Case.parse(item["id"])
    except ValueError as error:
        raise FormError(f"{place}.id: found {shown(item['id'])}; {_form(error)}") from error
    for key, own in (
        ("system", case.system),
        ("framework", case.framework),
        ("model", case.model),
        ("precision", case.precision),
        ("batch_per_device", case.batch_per_device),
        ("options", list(case.options)),
        ("topology", str(case.topology)),
        ("nodes", case.topology.nodes),
        ("devices_per_node", case.topology.devices_per_node),
    ):
        if item[key] != own:
            raise FormError(
                f"{place}.{key}: found {shown(item[key])}, but by its id {case.id} it is "
                f"{shown(own)}"
            )
    return case


def _form(error: ValueError) -> str:
    """What an error says but for the value, which may be of any length."""
    return str(error).rpartition("; ")[2]


def _measurement(
    item: dict[str, Any], estimator: Estimator, case: Case, place: str
) -> Measurement | None:
    taken_on, available = item.get("fingerprint"), item.get("available_runs")
    if not item["runs"] and taken_on is None and available is None:
        return None
    if item["unit"] is None:
        raise FormError(f"{place}.unit: found null; a case with runs has a unit")
    return Measurement(
        case_id=case.id,
        unit=item["unit"],
        estimator=estimator,
        runs=tuple(map(Run.from_plain, item["runs"])),
        fingerprint=Fingerprint.from_plain(taken_on) if taken_on else None,
        available=available,
    )


def _judgement(item: dict[str, Any], quantity: Quantity) -> Judgement | None:
    """The verdict on a quantity with what led to it, which early files do not have."""
    verdict = item["verdict"][quantity.value]
    if verdict is None:
        return None
    gate = item.get("gate", {}).get(quantity.value) or {}
    is_throughput = quantity is Quantity.THROUGHPUT
    # Both numbers stand elsewhere in the file. What was broken was not held against anything.
    measured = item["throughput"]["median"] if is_throughput else item["speedup"]
    is_compared = gate.get("rule") is not None or not gate
    accepted = item["baseline"] if is_compared else None
    return Judgement.from_plain(
        {
            **gate,
            "quantity": quantity.value,
            "verdict": verdict,
            "measured": measured if verdict not in _UNMEASURED else None,
            "accepted": accepted[quantity.value] if accepted else None,
        }
    )


_UNMEASURED: Final = frozenset({"failed", "hung", "invalid", "skipped"})

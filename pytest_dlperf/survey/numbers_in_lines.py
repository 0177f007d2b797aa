"""Numbers of a program without steps that stand in its lines: in known forms, by name, alone.

What it guesses is marked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.survey.printed_numbers import (
    MAX_METRICS,
    NUMBER,
    RATE_UNIT,
    TIME_UNIT,
    VALUE,
    Proposal,
    distinct_name,
    judged_by,
    score_of,
    unit_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LAST_LINES: Final = 40
_ALONE: Final = "(?P<value>[-+]?[0-9][-+.,0-9eE]*)"
_LABELLED: Final = re.compile(
    r"(?P<label>[^0-9\W](?:[\w ./()\[\]%-]{0,60}?))"
    rf"(?P<between>\s*[:=]\s*|\s+)(?P<number>{NUMBER})"
    r"(?P<gap>[ ]?)(?P<unit>[A-Za-z%µ][\w/%µ*^-]{0,15})?[.;,]?\s*"
)
_LONE: Final = re.compile(rf"\s*{NUMBER}(?:[ ]?(?P<unit>[A-Za-z%µ][\w/%µ]{{0,15}}))?\s*")
_WITHIN: Final = re.compile(
    r"(?:^|(?<=[\s,;([:]))(?P<label>[A-Za-z][\w./%-]*(?: [A-Za-z][\w./%-]*){0,3})"
    rf"(?P<between>\s*[:=]\s*|\s+)(?P<number>{NUMBER})"
    r"(?P<gap>[ ]?)(?P<unit>[A-Za-z%µ][\w/%µ*^-]{0,15})?(?=$|[\s,;)\]])"
)
"""A number with its name, beside others or in the middle of a line."""


class _Form(Struct, frozen=True):
    """How a well-known program says its number, with its unit where that changes."""

    program: str
    record: str
    name: str
    unit: str
    """Empty for that which the group ``unit`` takes."""
    better: str


_FORMS: Final = (
    _Form(
        "dd", r"copied, [^,]+, (?P<value>[0-9.]+) (?P<unit>[kMGT]?B/s)",
        "bandwidth", "", "higher",
    ),
    _Form(
        "fio", r"^ *(?P<direction>READ|WRITE): bw=(?P<value>[0-9.]+)(?P<unit>[KMG]iB/s)",
        "bandwidth", "", "higher",
    ),
    *(
        _Form(
            "iperf3", rf"(?P<value>[0-9.]+) {unit}its/sec .*receiver",
            "bitrate", f"{unit}/s", "higher",
        )
        for unit in ("Kb", "Mb", "Gb")
    ),
    _Form(
        "Google Benchmark",
        r"^(?P<benchmark>[^ ]+) +(?P<value>[0-9.e+-]+) (?P<unit>[nmu]?s) +"
        r"[0-9.e+-]+ [nmu]?s +[0-9]+",
        "time", "", "lower",
    ),
    _Form("time", r"^real\s+0m(?P<value>[0-9.]+)s", "real_time", "s", "lower"),
)  # fmt: skip


_SERVED: Final = (
    ("Output token throughput (tok/s)", "output_throughput", "tokens/s", "higher"),
    ("Median TTFT (ms)", "ttft_p50", "ms", "lower"),
    ("P99 TTFT (ms)", "ttft_p99", "ms", "lower"),
    ("Median TPOT (ms)", "tpot_p50", "ms", "lower"),
    ("Successful requests", "completed", "requests", "higher"),
)
"""What the benchmarks of vLLM and SGLang print, by the names of the systems that ship for them."""


def known_forms(text: str) -> Iterator[Proposal]:
    """Propose the numbers of programs that many start, each by how it prints them."""
    if "Serving Benchmark Result" in text:
        by_sglang = re.search(r"^Backend: +sglang", text, re.MULTILINE)
        system = "sglang_bench" if by_sglang else "vllm_bench"
        escaped = (re.escape(label).replace("\\ ", " ") for label, *_ in _SERVED)
        records = [rf"^{label}: +(?P<value>[0-9.]+)" for label in escaped]
        metrics = {
            name: {"record": record, "unit": unit, "better": better}
            for record, (_, name, unit, better) in zip(records, _SERVED, strict=True)
            if re.search(record, text, re.MULTILINE)
        }
        if metrics:
            yield Proposal(
                kind=f"what {system} prints",
                metrics=metrics,
                unsure={},
                comments=(
                    f"A system that ships starts the server too: pytest-dlperf systems {system}",
                ),
            )
    for form in _FORMS:
        found = re.search(form.record, text, re.MULTILINE)
        if found is not None:
            unit = form.unit or found["unit"]
            keys = {"record": form.record, "unit": unit, "better": form.better}
            yield Proposal(
                kind=f"as {form.program} prints it",
                metrics={form.name: keys},
                unsure={f"metrics.{form.name}.record": f"is {form.better} better?"},
            )


def last_numbers(text: str) -> Iterator[Proposal]:
    """Propose numbers that have a name, or the one that stands alone on the last line."""
    lines = [line for line in text.split("\n") if line.strip()][-_LAST_LINES:]
    found = []
    for at, line in enumerate(lines):
        for match in _labelled(line):
            unit = match["unit"] or unit_of(match["label"])
            score = score_of(match["label"], unit)
            is_last = at == len(lines) - 1 and match.re is _LABELLED
            if score or is_last:
                found.append((-score, at, match, line, unit))
    metrics: dict[str, dict[str, Any]] = {}
    unsure = {}
    for _, _, match, line, unit in sorted(found, key=lambda one: one[:2])[:MAX_METRICS]:
        label = distinct_name(match["label"], metrics)
        judged, doubt = judged_by(match["label"], unit)
        metrics[label] = {"record": _label_expression(match, line), **judged}
        unsure[f"metrics.{label}.record"] = doubt
    lone = _LONE.fullmatch(lines[-1]) if lines else None
    if not metrics and lone is not None:
        judged, doubt = judged_by("", lone["unit"] or "")
        behind = f" ?{lone['unit']}" if lone["unit"] else ""
        metrics["result"] = {"record": rf"^\s*{_ALONE}{behind}\s*$", **judged}
        unsure["metrics.result.record"] = f"name it by what it measures; {doubt}"
    if metrics:
        kind = "a number" if len(metrics) == 1 else f"{len(metrics)} numbers"
        yield Proposal(kind=f"{kind} at its end", metrics=metrics, unsure=unsure)


def _labelled(line: str) -> Sequence[re.Match[str]]:
    """Find the number of a line that says nothing else, or those that clearly are measured."""
    whole = _LABELLED.fullmatch(line.strip().lstrip("#*-> "))
    if whole is not None:
        return [whole]
    if line.lstrip().startswith(("{", "[{")):
        return []
    found = _WITHIN.finditer(line)
    return [one for one in found if one["between"].strip() or _is_measure(one["unit"] or "")]


def _is_measure(unit: str) -> bool:
    return RATE_UNIT.fullmatch(unit) is not None or TIME_UNIT.fullmatch(unit) is not None


def _label_expression(match: re.Match[str], line: str) -> str:
    begin = line[: line.index(match["label"])]
    front = re.sub(r"\s+", " +", re.escape(match["label"]).replace(r"\ ", " "))
    between = r" *[:=]\s*" if re.search("[:=]", match["between"]) else r"\s+"
    between = between if ":" not in match["between"] else r"\s*:\s*"
    behind = re.escape(match["unit"]) if match["unit"] else ""
    space = r"\s*" if match["unit"] else ""
    start = "^" + re.escape(begin) if not begin.strip() else re.escape(begin)
    start = re.sub(r"(?:\\ )+", " *", start)
    if match.re is _WITHIN and begin:
        start = r"(?:^|[\s,;(\[:])"
    return f"{start}{front.replace(chr(92) + '-', '-')}{between}{VALUE}{space}{behind}"

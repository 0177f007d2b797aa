"""``pytest-dlperf read``: identifies logs, shows what they hold, and what to do next."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_folders,
    file_argument,
    path_argument,
    write_report,
)
from pytest_dlperf.command.training_log import Found, found_in, head_of, measure
from pytest_dlperf.config.systems import System, read_systems
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.meanings import known_trainers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.numbers import counted, named, quantity
from pytest_dlperf.model.work import TOKENS, StepsIn, TimeKind, Timing
from pytest_dlperf.report.printing import cut, printable, wrapped
from pytest_dlperf.survey.draft import written
from pytest_dlperf.survey.drafting import PRINTED_BY_US
from pytest_dlperf.survey.expressions import lines_of
from pytest_dlperf.survey.head import HeadOfLog
from pytest_dlperf.survey.identify import Identification
from pytest_dlperf.survey.line_clusters import named_numbers, unit_of
from pytest_dlperf.survey.probe_output import ProbeOutput

_LABEL_WIDTH: Final = 14
_LINE: Final = (
    'print(f"dlperf step rank={rank} step={step} time={time.time()} loss={loss}", flush=True)'
)
_SHOWN: Final = 3
"""Cases, and values of a fact, that are named."""
_UNIT_OF_RATE: Final = {Timing.SAMPLES_PER_SECOND: "samples/s", Timing.TOKENS_PER_SECOND: TOKENS}
_Rows: TypeAlias = "Iterator[tuple[str, str]]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Show what a log is and holds: format, steps, ranks, the measured metrics, every number "
        "and fact, doubts, and the next command. Of a large log, only the head and the end are "
        "read."
    )
    parser.epilog = PYTEST_ARGUMENTS
    parser.add_argument("logs", nargs="+", type=path_argument, metavar="FILE", help="logs to read")
    parser.add_argument("--case", metavar="CASE", help="the id of the case whose run wrote the log")
    parser.add_argument(
        "--write",
        type=file_argument,
        metavar="FILE",
        help="write a first system file, for a log that no system reads yet",
    )
    add_folders(parser)


def run(options: argparse.Namespace) -> int:
    """Read the logs, print what they hold, and return the exit code."""
    file = None if options.write is None else Path(options.write)
    if file is not None:
        _check_write(file, options.logs)
    heads = [head_of(Path(log)) for log in options.logs]
    project = read_project(options)
    formats = project.formats
    systems, problems = read_systems(project.system_files, formats)
    wanted = _case(options.case, systems)
    style = Style(sys.stdout)
    style.show(f"note: {one}; 'pytest-dlperf check' shows all mistakes" for one in problems[:1])
    code = FINE
    for number, head in enumerate(heads):
        if number:
            style.show([""])
        found = found_in(head, systems, formats, wanted)
        style.show(_report(head, found, style, formats=formats, wanted=wanted, file=file))
        code = code if found else FAULTS
        if file is not None:
            _write(file, found)
    return code


def _check_write(file: Path, logs: Sequence[str]) -> None:
    if len(logs) > 1:
        raise UsageError("--write makes a system file from one log; name one")
    if os.path.lexists(file):
        raise UsageError(f"--write: {printable(str(file))} exists; name a new file")
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--write: system files end with .yaml, unlike {printable(str(file))}")


def _case(given: str | None, systems: Mapping[str, System]) -> Case | None:
    if given is None:
        return None
    known = {case.id: case for system in systems.values() for case in system.cases}
    if given in known:
        return known[given]
    try:
        return Case.from_id(given)
    except ValueError as error:
        raise UsageError(f"--case: {error}{nearest(given, known)}") from error


def _write(file: Path, found: Found) -> None:
    if found is None:
        raise UsageError("--write: nothing was found to write")
    draft = found.draft
    if draft is None:
        raise UsageError(f"--write: {found.system.id} reads such logs already: {found.system.file}")
    write_report("--write", file, draft if isinstance(draft, str) else draft.text())


def _report(  # noqa: PLR0913 - what is known beside the log
    head: HeadOfLog,
    found: Found,
    style: Style,
    *,
    formats: Iterable[str],
    wanted: Case | None,
    file: Path | None,
) -> Iterator[str]:
    """Describe a log in labelled rows."""
    if found is None:
        trainer = head.trainer()
        what = "an unknown log" if trainer is None else f"a log of {trainer.name}"
        kind, rows = f"{what}, in which no line shows a step", _unknown(head, formats)
    elif isinstance(found, ProbeOutput):
        kind, rows = found.kind, _probe(head, found, file)
    else:
        owner = "" if found.draft is not None else f", as {found.system.id} reads it"
        kind, rows = f"{found.kind}{owner}", _known(head, found, wanted, file)
    yield style(f"{printable(str(head.path))}: {kind}", "bold")
    size = f"{head.size:,} bytes"
    amount = f"all of its {size}"
    if not head.is_whole:
        amount = f"the first {head.read:,} of its {size}, and its end"
    for label, text in (("read", amount), *rows):
        lines = [text]  # what is to be copied stays unbroken
        if label not in {"next", "format"} and not text.startswith("pytest"):
            lines = wrapped(text, max(style.width - _LABEL_WIDTH, 30)) or [""]
        for number, line in enumerate(lines):
            yield f"  {'' if number else label:<{_LABEL_WIDTH - 2}}{line}"


def _known(head: HeadOfLog, found: Identification, wanted: Case | None, file: Path | None) -> _Rows:
    system, draft = found.system, found.draft
    yield from _steps(found)
    run = measure(head, found, wanted)
    yield "throughput", _throughput_text(run, found)
    units = {metric.name: metric.unit for metric in system.metrics}
    for name, value in run.metrics.items() if run is not None else ():
        if name != THROUGHPUT:
            yield "metric", f"{name} {quantity(value, units.get(name, ''))}"
    facts = [
        f"{each.fact.name} {', '.join(map(printable, each.values[:_SHOWN]))}"
        f"{' (it says both)' if len(each.values) > 1 else ''}"
        for each in found.facts
    ]
    yield "facts", "; ".join(facts) or "none"
    yield from _numbers(head, system)
    yield from _declared({} if draft is None else draft.keys)
    yield from (("unsure", doubt) for doubt in dict.fromkeys(_doubts(found)))
    if draft is not None:
        yield from _next(head, system, found.case.id, file)
        return
    cases = [case.id for case in found.cases]
    if wanted is not None:
        cases = [case.id for case in system.cases if case == wanted]
    if len(cases) > 1:
        yield "cases", named(cases, _SHOWN)
    yield "next", _session(head, system, cases)


def _steps(found: Identification) -> _Rows:
    steps = found.steps
    every = "each" if steps.interval == 1 else f"every {steps.interval}"
    records = f"{counted(steps.records, 'record')} looked at, the first on line {steps.line}"
    yield "steps", f"{steps.first} to {steps.last}, {every} printed; {records}"
    if steps.epochs > 1:
        yield "epochs", f"{steps.epochs}, of steps up to {steps.epoch_length}"
    ranks = f"{steps.printers} print, without their names"
    if steps.ranks:
        ranks = f"{named(steps.ranks, 8)} print, by name"
    yield "ranks", ranks if steps.printers > 1 or steps.ranks else "one process prints"
    yield "time", _meaning(found.system.log_format)
    if found.checked.agreements:
        yield "checked", f"it {', '.join(found.checked.agreements)}"
    yield "window", _window_text(found.system)


def _declared(keys: Mapping[str, Any]) -> _Rows:
    form = keys.get("log", {}).get("format")
    if "extends" in keys:
        yield "system", f"{keys['extends']}, which ships: 'pytest-dlperf systems' shows it"
    elif isinstance(form, dict):
        yield "format", written({key: one for key, one in form.items() if key != "facts"})


def _doubts(found: Identification) -> Iterator[str]:
    yield from found.unsure
    if found.draft is None:
        yield from found.checked.contradictions
    if found.others:
        yield f"also on the line, and not taken: {', '.join(found.others)}"
    if found.trainer is not None and found.trainer.advice:
        yield found.trainer.advice


def _unknown(head: HeadOfLog, formats: Iterable[str]) -> _Rows:
    trainer = head.trainer()
    trainers = f"{len(known_trainers())} known trainers"
    lines = "lines that look alike and hold a number that rises"
    yield "tried", f"the formats {', '.join(formats)}; {trainers}; {lines}"
    if trainer is not None and trainer.advice:
        yield "known", trainer.advice
    for kind in head.clusters.repeated[:1]:
        line = kind.lines[0].decode(errors="replace").strip()
        yield "most alike", f"{kind.count} times: {cut(printable(line), 200)}"
    said = f"have each rank print a line a step, for the format dlperf: {_LINE}"
    if trainer is not None and trainer.system in PRINTED_BY_US:
        said = (
            f"a system file that says 'extends: {trainer.system}' has it print its steps, "
            "without a change of the script; 'pytest-dlperf init' writes one"
        )
    yield "next", said
    if trainer is None:
        yield "", "or, of a program without steps, declare its 'metrics'"


def _probe(head: HeadOfLog, found: ProbeOutput, file: Path | None) -> _Rows:
    yield "kind", "a probe: a run is one start of the program"
    for name, members in groupby(found.metrics, lambda one: one.family or one.name):
        texts = [
            f"{f'{one.member_name} ' if one.family else ''}"
            f"{quantity(found.run.metrics.get(one.name), one.unit)}"
            for one in members
        ]
        yield "metric", f"{name} {named(texts, _SHOWN)}"
    yield from (("unsure", doubt) for doubt in found.unsure)
    case = found.system.cases[0].id
    if found.draft is not None:
        yield from _next(head, found.system, case, file)
    else:
        yield "next", _session(head, found.system, [case])


def _next(head: HeadOfLog, system: System, case: str, file: Path | None) -> _Rows:
    """Say what comes next where the project has no system file of such logs."""
    log = shlex.quote(os.fspath(head.path))
    if file is None:
        yield "next", f"pytest-dlperf read {log} --write bench_tests/systems/{system.id}.yaml"
        return
    yield "next", f"look at what {shlex.quote(str(file))} marks with ?"
    yield "", f"pytest-dlperf check --systems {shlex.quote(str(file.parent))}"
    yield "", f"pytest bench_tests --dlperf-logs {case}={log}"


def _session(head: HeadOfLog, system: System, cases: list[str]) -> str:
    if not cases:
        return f"{system.file} has no case of what the log is of; add one"
    log = shlex.quote(os.fspath(head.path))
    return f"pytest bench_tests -k {cases[0]} --dlperf-logs {cases[0]}={log}"


def _numbers(head: HeadOfLog, system: System) -> _Rows:
    kind = lines_of(head.clusters.repeated, system.log_format)
    if kind is not None:
        texts = [
            f"{printable(name)} {each.texts[0].decode()} … {each.texts[-1].decode()}"
            f"{f' {unit_of(each)}' if unit_of(each) != name else ''}".rstrip()
            for name, each in named_numbers(kind.columns()).items()
        ]
        yield "numbers", "; ".join(texts)
        yield "a record", cut(printable(kind.lines[0].decode(errors="replace")), 300)


def _window_text(system: System) -> str:
    window, settling = system.window, system.log_format.settling_steps
    after = window.warmup_steps + settling
    settled = f", {settling} to settle" if settling else ""
    return (
        f"steps {after + 1} to {after + window.measured_steps}, counted from 1 "
        f"({window.warmup_steps} to warm up{settled})"
    )


def _throughput_text(run: Run | None, found: Identification) -> str:
    if run is None:
        return "none: no time is printed; of launches it is measured by when lines arrive"
    if run.status is not RunStatus.OK:
        return f"none: {run.reason}"
    value, case, unit = run.metrics[THROUGHPUT], found.case, found.system.unit
    log_format = found.system.log_format
    rate = _UNIT_OF_RATE.get(log_format.timing)
    # Of an unknown length, a sample counts as one token.
    has_length = not any(each.startswith("sequence_length:") for each in found.unsure)
    if found.batch_source and (has_length or rate != TOKENS):
        unit = unit if has_length else "samples/s"
        of = f"global batch {case.global_batch}, {found.batch_source}"
    elif log_format.steps_in is StepsIn.SAMPLES:
        value, unit, of = value / case.tokens_per_sample(unit), "samples/s", "steps are samples"
    elif rate is not None:
        # A speed needs no batch, and one of tokens no length of a sample.
        value /= (case.sequence_length or 1) if unit == TOKENS != rate else 1
        parts = case.rates_per_run(log_format.rate_scope)
        unit, of = rate, "as printed" if parts == 1 else f"{parts} times what is printed"
    else:
        steps = f"{value / case.work_of_step(unit):.4g} steps/s"
        return "; ".join(filter(None, [steps, "--case CASE makes samples of it", run.reason]))
    return "; ".join(filter(None, [f"{quantity(value, unit)} ({of})", run.reason]))


def _meaning(log_format: LogFormat) -> str:
    """Describe the time on a record."""
    timing, covers, scope = log_format.timing, log_format.covers, log_format.rate_scope
    if timing is Timing.ARRIVAL:
        return "nothing on the line: when it came is known of launches only"
    of = f", covers: {covers.value}" if covers and timing.kind is not TimeKind.MOMENT else ""
    of += f", rate_scope: {scope.value}" if timing.kind is TimeKind.RATE else ""
    return f"{timing.value}: {timing.kind.value}{of}"

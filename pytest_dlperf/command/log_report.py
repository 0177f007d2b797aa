"""The words of ``pytest-dlperf read`` for what it found in a log."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.command.shell import (
    Style,
)
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.meanings import known_trainers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.numbers import counted, named, quantity
from pytest_dlperf.model.work import TOKENS, Covers, RateScope, StepsIn, TimeKind, Timing
from pytest_dlperf.report.printing import cut, printable, wrapped
from pytest_dlperf.survey.drafting import PRINTED_BY_US
from pytest_dlperf.survey.expressions import lines_of
from pytest_dlperf.survey.first_system import ShippedSystem, written
from pytest_dlperf.survey.line_clusters import named_numbers

if TYPE_CHECKING:
    from pytest_dlperf.config.systems import System
    from pytest_dlperf.survey.head import HeadOfLog, StepsOfLog
    from pytest_dlperf.survey.identify import Identification
    from pytest_dlperf.survey.probe_output import ProbeOutput

_LABEL_WIDTH: Final = 14
_CASES_NAMED: Final = 3
_LINE: Final = (
    'print(f"dlperf step rank={rank} step={step} time={time.time()} loss={loss}", flush=True)'
)
_VALUES_SHOWN: Final = 3
_UNIT_OF_RATE: Final = {
    Timing.SAMPLES_PER_SECOND: "samples/s",
    Timing.TOKENS_PER_SECOND: TOKENS,
}


class LogReport(Struct, frozen=True):
    """Words what was found in logs, in labelled rows."""

    systems: Mapping[str, System]
    formats: Mapping[str, LogFormat]
    wanted: Case | None
    style: Style
    file: Path | None
    """The system file to be written."""

    def known(self, head: HeadOfLog, found: Identification, run: Run | None) -> Iterator[str]:
        """Describe a log that a format reads; without a ``run``, it prints no time."""
        system, steps = found.system, found.steps
        owner = "" if found.starter is not None else f", as {system.id} reads it"
        yield self.style(f"{printable(str(head.path))}: {found.kind}{owner}", "bold")
        yield from self._rows("read", _amount_read(head))
        yield from self._rows("steps", _steps_text(steps))
        if steps.epochs > 1:
            yield from self._rows("epochs", f"{steps.epochs}, of steps up to {steps.epoch_length}")
        yield from self._rows("ranks", _ranks_text(steps))
        yield from self._rows("time", _meaning(system.log_format))
        if found.checked.agreements:
            yield from self._rows("checked", f"it {', '.join(found.checked.agreements)}")
        doubts = list(found.unsure)
        if found.starter is None:
            doubts += found.checked.contradictions
        yield from self._rows("window", _window_text(system))
        yield from self._metrics(found, run)
        facts = [f"{each.fact.name} {_some(each.values)}" for each in found.facts]
        yield from self._rows("facts", "; ".join(facts) or "none")
        yield from self._numbers(head, system)
        form = found.starter.format if found.starter is not None else ""
        if isinstance(form, ShippedSystem):
            text = f"{form.name}, which ships: 'pytest-dlperf systems {form.name}' shows it"
            yield from self._rows("system", text)
        elif not isinstance(form, str):
            shown = {key: one for key, one in form.items() if key != "facts"}
            yield from self._rows("format", written(shown))
        doubts += _doubts(found)
        for doubt in dict.fromkeys(doubts):
            yield from self._rows("unsure", doubt)
        yield from self._next(head, found)

    def unknown(self, head: HeadOfLog, beside: HeadOfLog | None) -> Iterator[str]:
        """Describe a log that no format reads; one ``beside`` it may show the steps."""
        shown = printable(str(head.path))
        trainer = head.trainer()
        what = f"a log of {trainer.name}" if trainer is not None else "an unknown log"
        yield self.style(f"{shown}: {what}, in which no line shows a step", "bold", "yellow")
        yield from self._rows("read", _amount_read(head))
        mine = sorted({s.log_format.name for s in self.systems.values()} - set(self.formats))
        own = f", of the project {', '.join(mine)}" if mine else ""
        yield from self._rows(
            "tried",
            f"the formats {', '.join(self.formats)}{own}; {len(known_trainers())} known trainers; "
            "lines that look alike and hold a number that rises",
        )
        if trainer is not None and trainer.advice:
            yield from self._rows("known", trainer.advice)
        for kind in head.clusters.repeated[:1]:
            line = kind.lines[0].decode(errors="replace").strip()
            text = f"{kind.count} times: {cut(printable(line), 200)}"
            yield from self._rows("most alike", text)
        if beside is not None:
            yield from self._rows(
                "next",
                f"if it is another node's of the run of {printable(str(beside.path))}, say in "
                "'log.node' whose log shows the steps, and name the logs of all nodes, node 0's "
                "first: --dlperf-logs CASE=FILE,FILE",
            )
            return
        ships = "" if trainer is None else trainer.system
        yield from self._rows(
            "next",
            f"a system file that says 'extends: {ships}' has it print its steps, without a change "
            "of the script; 'pytest-dlperf init' writes one"
            if ships in PRINTED_BY_US
            else f"have each rank print a line a step, for the format dlperf: {_LINE}",
        )
        if trainer is None:
            yield from self._rows("", "or, of a program without steps, declare its 'metrics'")

    def probe(self, head: HeadOfLog, found: ProbeOutput) -> Iterator[str]:
        """Describe what a program without steps has printed or written."""
        yield self.style(f"{printable(str(head.path))}: {found.kind}", "bold")
        yield from self._rows("read", _amount_read(head))
        yield from self._rows("kind", "a probe: a run is one start of the program")
        for name, members in groupby(found.metrics, lambda one: one.family or one.name):
            texts = [
                f"{f'{one.member_name} ' if one.family else ''}"
                f"{quantity(found.run.metrics.get(one.name), one.unit)}"
                for one in members
            ]
            yield from self._rows("metric", f"{name} {named(texts, _VALUES_SHOWN)}")
        for doubt in found.unsure:
            yield from self._rows("unsure", doubt)
        shown, case = shlex.quote(os.fspath(head.path)), found.system.cases[0].id
        if found.text and self.file is None:
            file = f"bench_tests/systems/{found.system.id}.yaml"
            yield from self._rows("next", f"pytest-dlperf read {shown} --write {file}")
            return
        if found.text:
            yield from self._rows(
                "next", f"look at what {shlex.quote(str(self.file))} marks with ?"
            )
        session = f"pytest bench_tests -k {case} --dlperf-logs {case}={shown}"
        yield from self._rows("" if found.text else "next", session)

    def _numbers(self, head: HeadOfLog, system: System) -> Iterator[str]:
        kind = lines_of(head.clusters.repeated, system.log_format)
        if kind is None:
            return
        texts = [
            f"{printable(each.name)} {each.first} … {each.last}"
            f"{f' {each.unit}' if each.unit and each.unit != each.name else ''}"
            for each in named_numbers(kind.columns())
        ]
        yield from self._rows("numbers", "; ".join(texts))
        yield from self._rows(
            "a record", cut(printable(kind.lines[0].decode(errors="replace")), 300)
        )

    def _metrics(self, found: Identification, run: Run | None) -> Iterator[str]:
        """Describe the metrics of the window."""
        if run is None:
            text = "none: no time is printed; of launches it is measured by when lines arrive"
            yield from self._rows("throughput", text)
            return
        yield from self._rows("throughput", _throughput_text(run, found))
        units = {metric.name: metric.unit for metric in found.system.metrics}
        for name, value in run.metrics.items():
            if name != THROUGHPUT:
                yield from self._rows("metric", f"{name} {quantity(value, units.get(name, ''))}")

    def _next(self, head: HeadOfLog, found: Identification) -> Iterator[str]:
        shown = shlex.quote(os.fspath(head.path))
        if found.starter is not None:
            if self.file is None:
                file = f"bench_tests/systems/{found.system.id}.yaml"
                yield from self._rows("next", f"pytest-dlperf read {shown} --write {file}")
                return
            file = shlex.quote(str(self.file))
            folder = shlex.quote(str(self.file.parent))
            yield from self._rows("next", f"look at what {file} marks with ?")
            yield from self._rows("", f"pytest-dlperf check --systems {folder}")
            yield from self._rows("", f"pytest bench_tests --dlperf-logs {found.case.id}={shown}")
            return
        cases = [case.id for case in found.cases]
        if self.wanted is not None:
            cases = [case.id for case in found.system.cases if case == self.wanted]
        if not cases:
            yield from self._rows(
                "next",
                f"{found.system.file} has no case of what the log is of; add one",
            )
            return
        if len(cases) > 1:
            yield from self._rows("cases", f"{named(cases, _CASES_NAMED)}")
        yield from self._rows(
            "next", f"pytest bench_tests -k {cases[0]} --dlperf-logs {cases[0]}={shown}"
        )

    def _rows(self, label: str, text: str) -> Iterator[str]:
        if label in ("next", "format") or text.startswith("pytest"):
            # To be copied, so unbroken.
            yield _row(label, text)
            return
        first, *rest = wrapped(text, max(self.style.width - _LABEL_WIDTH, 30)) or [""]
        yield _row(label, first)
        yield from (_row("", line) for line in rest)


def _row(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH - 2}}{text}"


def _amount_read(head: HeadOfLog) -> str:
    if head.is_whole:
        return f"all of its {head.size:,} bytes"
    return f"the first {head.read:,} of its {head.size:,} bytes, and its end"


def _steps_text(steps: StepsOfLog) -> str:
    every = "each" if steps.interval == 1 else f"every {steps.interval}"
    return (
        f"{steps.first} to {steps.last}, {every} printed; "
        f"{counted(steps.records, 'record')} looked at, the first on line {steps.line}"
    )


def _ranks_text(steps: StepsOfLog) -> str:
    if steps.ranks:
        return f"{named(steps.ranks, 8)} print, by name"
    if steps.printers > 1:
        return f"{steps.printers} print, without their names"
    return "one process prints"


def _window_text(system: System) -> str:
    window, settling = system.window, system.log_format.settling_steps
    after = window.warmup_steps + settling
    settled = f", {settling} to settle" if settling else ""
    return (
        f"steps {after + 1} to {after + window.measured_steps}, counted from 1 "
        f"({window.warmup_steps} to warm up{settled})"
    )


def _throughput_text(run: Run, found: Identification) -> str:
    if run.status is not RunStatus.OK:
        return f"none: {run.reason}"
    value, case = run.metrics[THROUGHPUT], found.case
    note = f"; {run.reason}" if run.reason else ""
    log_format = found.system.log_format
    # Of an unknown length, a sample counts as one token.
    has_length = not any(each.startswith("sequence_length:") for each in found.unsure)
    if found.batch_source and (has_length or log_format.timing is not Timing.TOKENS_PER_SECOND):
        of = f"global batch {case.global_batch}, {found.batch_source}"
        return f"{quantity(value, found.system.unit if has_length else 'samples/s')} ({of}){note}"
    if log_format.steps_in is StepsIn.SAMPLES:
        per_sample = case.tokens_per_sample(found.system.unit)
        return f"{quantity(value / per_sample, 'samples/s')} (steps are samples){note}"
    if (unit := _UNIT_OF_RATE.get(log_format.timing)) is not None:
        # A speed needs no batch, and one of tokens no length of a sample.
        if found.system.unit == TOKENS and unit != TOKENS:
            value /= case.sequence_length or 1
        parts = case.rates_per_run(log_format.rate_scope)
        of = "as printed" if parts == 1 else f"{parts} times what is printed"
        return f"{quantity(value, unit)} ({of}){note}"
    per_step = value / case.work_of_step(found.system.unit)
    return f"{per_step:.4g} steps/s; --case CASE makes samples of it{note}"


def _doubts(found: Identification) -> Iterator[str]:
    guessed = found.guess
    if guessed is not None and guessed.others:
        yield f"also on the line, and not taken: {', '.join(guessed.others)}"
    if found.trainer is not None and found.trainer.advice:
        yield found.trainer.advice


def _some(values: Sequence[str]) -> str:
    shown = ", ".join(printable(value) for value in values[:_VALUES_SHOWN])
    return f"{shown} (it says both)" if len(values) > 1 else shown


def _meaning(log_format: LogFormat) -> str:
    """Describe the time on a record."""
    timing, covers = log_format.timing, log_format.covers
    if timing is Timing.ARRIVAL:
        return "nothing on the line: when it came is known of launches only"
    if timing.kind is TimeKind.MOMENT:
        return f"{timing.value}: {timing.kind.value}"
    of = {
        Covers.LAST_STEP: "of the last step",
        Covers.SINCE_LAST: "of the steps since the record before",
        Covers.TOTAL_SINCE_LAST: "of all steps since the record before together",
        Covers.SINCE_START: "of all steps since the start",
        None: "",
    }[covers]
    scope = ""
    if timing.kind is TimeKind.RATE and timing is not Timing.STEPS_PER_SECOND:
        scope = {
            RateScope.GLOBAL: ", of all devices",
            RateScope.NODE: ", of a node",
            RateScope.RANK: ", of a rank",
            RateScope.DEVICE: ", of a device",
        }[log_format.rate_scope]
    return f"{timing.value}: {timing.kind.value}, {of}{scope}"

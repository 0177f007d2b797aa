"""One measured run of a case as a candidate has it: a session of its own, by the usual launchers.

A candidate runs through the same hosts, leases and readers as a night. What the session would
report is left out: no history, no baselines, no notices.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, json
from msgspec.structs import replace

from pytest_dlperf.config.options import OPTIONS, Option
from pytest_dlperf.files.writing import make_folder, write_whole
from pytest_dlperf.measure.case_launch import LaunchChange
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.model.measurement import Fingerprint, LaunchFacts, Measurement
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.results.file import ResultsFileError, read_results

_RESET: Final = (
    "metric_lists", "create_baselines", "update_baselines", "extend_baselines", "reason", "strict",
    "notify_lists", "notify_on",
)  # fmt: skip
"""Options of the user's sessions that a trial does not take over, by field; nor reports'."""
_WRITTEN: Final = ("json_file", "session_dir", "history_file")
"""Options that a trial sets itself."""
_OF_CI: Final = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTEST_XDIST_WORKER")
_END_LIMIT_S: Final = 30.0
"""Seconds that an interrupted session may take to end its run."""
_ERROR: Final = re.compile(r"^(?:ERROR: |E  +|Error: )(.+)", re.MULTILINE)
_USAGE_ERROR: Final = 4


class TrialOrder(Struct, frozen=True, kw_only=True):
    """What the session of a trial is to measure."""

    case_id: str
    change: LaunchChange


class Setup(Struct, frozen=True, kw_only=True):
    """Where and how a candidate is measured: the session's folder, and what it launches."""

    folder: str
    arguments: tuple[str, ...] = ()
    """Further arguments of pytest."""
    change: LaunchChange = LaunchChange()


class Trial(Struct, frozen=True, kw_only=True):
    """What came of one run: a number, or why there is none."""

    value: float | None = None
    """In the metric's unit."""
    problem: str | None = None
    hosts: tuple[str, ...] = ()
    launch: LaunchFacts | None = None


class AbortedError(BrokenError):
    """The search cannot go on, and no candidate is to blame for it; the same command resumes it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, which ends the build or session that is under way.

    Raises:
        AbortedError: One of them came.
    """
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise AbortedError("it was interrupted") from None
    finally:
        signal.signal(signal.SIGTERM, former)


def options_reset() -> Iterator[Option]:
    """List the options that a trial's session does not take over."""
    reports = (name for name, one in OPTIONS.items() if one.names_a_report)
    return (OPTIONS[name] for name in (*_RESET, *reports) if name not in _WRITTEN)


class Trials:
    """Measures a metric of one case; each trial leaves its logs and output in ``folder``."""

    def __init__(self, folder: Path, case_id: str, arguments: tuple[str, ...]) -> None:
        self._folder = folder.absolute()
        self._case_id, self._arguments = case_id, arguments

    def run(self, number: int, setup: Setup, metric: Metric, hosts: tuple[str, ...] = ()) -> Trial:
        """Run trial ``number``, on these hosts if they are known.

        Raises:
            AbortedError: Hosts or pytest itself are broken, or the session was ended.
        """
        # The session of a search that was killed may be about to end its run.
        place = self._folder / f"{number:04}-{os.getpid()}"
        change = replace(setup.change, hosts=setup.change.hosts or hosts)
        code = self._session(place, setup, TrialOrder(case_id=self._case_id, change=change))
        output = (place / "output.txt").read_text(encoding="utf-8", errors="replace")
        return self._read(metric, place, code, output)

    def _session(self, place: Path, setup: Setup, ordered: TrialOrder) -> int:
        make_folder(place)
        results, order = place / "results.json", place / "order.json"
        write_whole(order, json.encode(ordered))
        words = [
            sys.executable, "-m", "pytest", *self._arguments, *setup.arguments,
            "-p", "pytest_dlperf.plugin", "-p", "pytest_dlperf.plugin.candidate",
            f"--candidate-order={order}", f"--dlperf-json={results}", "--dlperf-history=none",
            f"--dlperf-run-dir={place / 'logs'}", "--dlperf-repeats=1", "--dlperf-control=never",
        ]  # fmt: skip
        for declared in options_reset():
            words += ["-o", f"{declared.key}="] * (not declared.typed_only)
        reset = {declared.variable for declared in options_reset()}
        left_out = {*_OF_CI, *filter(None, reset)}
        environment = {k: v for k, v in os.environ.items() if k not in left_out}
        with (place / "output.txt").open("wb") as file:
            session = subprocess.Popen(  # noqa: S603 - pytest, with the user's own arguments
                words,
                cwd=setup.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
            try:
                return session.wait()
            except BaseException:
                # A Ctrl-C has reached it as well; whoever sends a signal to us alone means both.
                session.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                    session.wait(_END_LIMIT_S)
                session.kill()  # nothing, where it has ended
                raise

    def _read(self, metric: Metric, place: Path, code: int, output: str) -> Trial:
        if code == _USAGE_ERROR:
            return Trial(problem=_last_error(output))
        try:
            results = read_results(place / "results.json")
        except ResultsFileError as error:
            raise AbortedError(
                f"the session of a run ended with exit code {code} and without results; its output "
                f"is in {place / 'output.txt'}"
            ) from error
        if results.interrupted:
            raise AbortedError("the session of a run was interrupted")
        if results.unfit_hosts:
            faults = "; ".join(f"{h}: {', '.join(f)}" for h, f in results.unfit_hosts.items())
            return Trial(problem=f"hosts cannot be used: {faults}")
        result = next((one for one in results.cases if one.case.id == self._case_id), None)
        measured = result.measurement if result is not None else None
        if result is None or measured is None:
            judged = result.judgements.values() if result is not None else ()
            reason = next((one.reason for one in judged if one.reason), None)
            return Trial(problem=reason or "it was not measured")
        taken_on = measured.fingerprint or Fingerprint()
        trial = Trial(hosts=taken_on.hosts, launch=taken_on.launch)
        try:
            return replace(trial, value=_number(measured, metric))
        except ValueError as error:
            return replace(trial, problem=str(error))


def _number(measured: Measurement, metric: Metric) -> float:
    """Return the number of a single run; a ``ValueError`` says why there is none."""
    for run in measured.broken_runs:
        raise ValueError(f"{run.status.value}: {run.reason or 'no reason is known'}")
    name = metric.name
    try:
        samples = measured.samples(name)
    except KeyError:
        known = ", ".join(one.name for one in measured.metrics)
        raise ValueError(f"there is no metric {name!r}; there are: {known}") from None
    if not samples.values:
        why = "; ".join(run.missing.get(name, "") for run in measured.runs)
        raise ValueError(f"the run has no {name}{': ' * bool(why)}{why}")
    unit, value = samples.metric.unit, samples.values[0]
    if (unit, samples.metric.better) != (metric.unit, metric.better):
        raise ValueError(f"its {name} is in {unit}, not in {metric.unit}")
    if value <= 0:
        raise ValueError(f"its number is {value:g}")
    return value


def _last_error(output: str) -> str:
    found = _ERROR.findall(output)
    return found[-1] if found else "pytest refused its arguments"

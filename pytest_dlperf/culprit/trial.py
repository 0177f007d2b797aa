"""One measured run of a case as a candidate has it: a session of its own, by the usual launchers.

A candidate runs through the same hosts, leases and readers as any session. What that would report
is left out: no history, no baselines, no notices.
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
    """What came of one run: a number in the metric's unit, or why there is none."""

    value: float | None = None
    problem: str | None = None
    hosts: tuple[str, ...] = ()
    launch: LaunchFacts | None = None


class AbortedError(BrokenError):
    """The search cannot go on, and no candidate is to blame for it; the same command resumes it."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, and raise either as an ``AbortedError``."""
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
        make_folder(place)
        change = replace(setup.change, hosts=setup.change.hosts or hosts)
        order = TrialOrder(case_id=self._case_id, change=change)
        write_whole(place / "order.json", json.encode(order))
        code = self._session(place, setup)
        if code == 4:  # noqa: PLR2004 - pytest's for its arguments
            errors = _ERROR.findall((place / "output.txt").read_text("utf-8", errors="replace"))
            return Trial(problem=errors[-1] if errors else "pytest refused its arguments")
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
            reasons = filter(None, (one.reason for one in judged))
            return Trial(problem=next(reasons, "it was not measured"))
        taken_on = measured.fingerprint or Fingerprint()
        value, problem = _number(measured, metric)
        return Trial(value=value, problem=problem, hosts=taken_on.hosts, launch=taken_on.launch)

    def _session(self, place: Path, setup: Setup) -> int:
        """Run the session, and return its exit code."""
        words = [
            sys.executable, "-m", "pytest", *self._arguments, *setup.arguments,
            "-p", "pytest_dlperf.plugin", "-p", "pytest_dlperf.plugin.candidate",
            f"--candidate-order={place / 'order.json'}",
            f"--dlperf-json={place / 'results.json'}", "--dlperf-history=none",
            f"--dlperf-run-dir={place / 'logs'}", "--dlperf-repeats=1", "--dlperf-control=never",
        ]  # fmt: skip
        left_out = {*_OF_CI}
        for declared in options_reset():
            words += ["-o", f"{declared.key}="] * (not declared.typed_only)
            left_out |= {declared.variable or ""}
        with (place / "output.txt").open("wb") as file:
            session = subprocess.Popen(  # noqa: S603 - pytest, with the user's own arguments
                words,
                cwd=setup.folder,
                env={k: v for k, v in os.environ.items() if k not in left_out},
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


def _number(measured: Measurement, metric: Metric) -> tuple[float | None, str | None]:
    """Return the number of a single run, or why there is none."""
    for run in measured.broken_runs:
        return None, f"{run.status.value}: {run.reason or 'no reason is known'}"
    known = {one.name: one for one in measured.metrics}
    if (found := known.get(metric.name)) is None:
        return None, f"there is no metric {metric.name!r}; there are: {', '.join(known)}"
    values = measured.samples(metric.name).values
    if not values:
        why = "; ".join(run.missing.get(metric.name, "") for run in measured.runs)
        return None, f"the run has no {metric.name}{': ' * bool(why)}{why}"
    if (found.unit, found.better) != (metric.unit, metric.better):
        return None, f"its {metric.name} is in {found.unit}, not in {metric.unit}"
    return (values[0], None) if values[0] > 0 else (None, f"its number is {values[0]:g}")

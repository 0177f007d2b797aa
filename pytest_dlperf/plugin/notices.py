"""Notices of a session: that it has begun, and what it has come to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pytest

from pytest_dlperf.config.options import Settings
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.notices.builtin import builtin_notifiers
from pytest_dlperf.notices.due import is_due
from pytest_dlperf.notices.notice import (
    Notifier,
    Outcome,
    begin_all,
    lines_of,
    send_all,
)
from pytest_dlperf.report.reports import Note, fault
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.results.file import encodable


class Notices:
    """The session's notifiers: none of their faults changes a verdict."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        of_others = config.hook.pytest_dlperf_notifiers(config=config)
        ours = builtin_notifiers(settings.targets)
        self._notifiers: list[Notifier] = [*ours, *chain.from_iterable(of_others)]
        self._settings = settings
        self._noted: set[str] = set()
        self._before: Any = None
        """The handler of SIGTERM that ``begin`` replaced."""

    def begin(self) -> Iterator[Note]:
        """Announce the session; let SIGTERM end it like Ctrl-C, so that notices are sent."""
        is_main = threading.current_thread() is threading.main_thread()
        is_free = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._notifiers and is_free:
            self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        yield from self._notes(begin_all(self._notifiers))

    def send(self, session: SessionReport, notes: Iterable[Note]) -> Iterator[Note]:
        """Send what the session has come to; bad ``notes`` fail the session too."""
        if not self._notifiers:
            return
        settings, faults = self._settings, faults_of(notes)
        try:
            notice = notice_of(
                session,
                faults=faults,
                is_due=is_due(
                    session.results, settings.notify_on, settings.history_file, is_bad=bool(faults)
                ),
                page=str(settings.html_file) if settings.html_file else None,
            )
            yield from self._notes(send_all(self._notifiers, notice))
        except Exception as error:  # noqa: BLE001 - a notice must not cost a session
            yield Note(f"no notice could be written: {fault(error)}")
        finally:
            if self._before is not None:
                signal.signal(signal.SIGTERM, self._before)

    def _notes(self, outcomes: list[Outcome]) -> Iterator[Note]:
        # A fault at the start mostly comes again at the end.
        new = [line for line in lines_of(outcomes) if line not in self._noted]
        self._noted.update(new)
        yield from map(Note, new)


def faults_of(notes: Iterable[Note]) -> tuple[str, ...]:
    """Return what failed the session beside its tests."""
    return encodable(tuple(note.text for note in notes if note.is_bad))

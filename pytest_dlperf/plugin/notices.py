"""Whom the session tells what it has come to, at its first test and at its end."""

from __future__ import annotations

import signal
import threading
from itertools import chain
from typing import TYPE_CHECKING, Any

from pytest_dlperf.reports.report import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.model.results import Results
    from pytest_dlperf.notices.notice import Notice, Notifier
    from pytest_dlperf.notices.sending import Outcome


class Notices:
    """The session's notifiers. Nothing that becomes of them changes a verdict."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        """Take whom the user and other plugins name."""
        from pytest_dlperf.notices.builtin import builtin_notifiers

        of_others = config.hook.pytest_dlperf_notifiers(config=config)
        self._settings = settings
        self._notifiers: tuple[Notifier, ...] = (
            *builtin_notifiers(settings.targets, settings.history_file),
            *chain.from_iterable(of_others),
        )
        self._told: set[str] = set()
        self._before: Any = None
        """What SIGTERM did before the session began to answer for itself."""

    def begin(self) -> Iterator[Note]:
        """Tell that the session has begun, and see to it that SIGTERM has its end told as well."""
        if not self._notifiers:
            return
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # Like Ctrl-C: what the session has come to is written and told.
            self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        from pytest_dlperf.notices.sending import begin_all

        yield from self._notes(begin_all(self._notifiers))

    def tell(self, results: Results, notes: Iterable[Note]) -> Iterator[Note]:
        """Tell what the session has come to; ``notes`` may have made it fail as well."""
        if not self._notifiers:
            return
        from pytest_dlperf.notices.sending import send_all

        faults = [note.text for note in notes if note.is_bad]
        try:
            yield from self._notes(send_all(self._notifiers, self._notice(results, faults)))
        except Exception as error:  # noqa: BLE001 - a notice must not cost a session
            from pytest_dlperf.reports.publish import fault

            yield Note(f"no notice could be written: {fault(error)}")
        finally:
            if self._before is not None:
                signal.signal(signal.SIGTERM, self._before)

    def _notice(self, results: Results, faults: list[str]) -> Notice:
        from pytest_dlperf.notices.due import is_due
        from pytest_dlperf.notices.summary import drifts_in, notice_of

        settings = self._settings
        file = settings.history_file
        return notice_of(
            results,
            faults=faults,
            is_due=is_due(results, settings.notify_on, file, is_bad=bool(faults)),
            drifts=drifts_in(file, results),
            page=str(settings.html_file) if settings.html_file else None,
        )

    def _notes(self, outcomes: list[Outcome]) -> Iterator[Note]:
        from pytest_dlperf.notices.sending import lines_of

        for line in lines_of(outcomes):
            if line not in self._told:  # what failed at the beginning mostly fails again
                self._told.add(line)
                yield Note(line)

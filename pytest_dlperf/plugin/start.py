"""When the plugin takes part in a session, and how its errors reach pytest."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from pytest_dlperf.config.option_reading import is_any_given, read_settings
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.named import is_in_named_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.plugin.session import DlperfSession

_SETTINGS: Final = pytest.StashKey["Settings"]()
_SESSION: Final = pytest.StashKey["DlperfSession"]()
_MISTAKE: Final = pytest.StashKey[UsageError]()
"""Why the session that tests ask for cannot start."""
_OWN_TESTS: Final = pytest.StashKey[list[tuple["Path", "Callable[..., object]"]]]()
_UNNAMED: Final = pytest.StashKey[set["Path"]]()
"""Files with tests that ask for cases, which nobody named."""


def settings_of(config: pytest.Config) -> Settings:
    """Return what the user asked for, read at the first call."""
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = read_settings(config)
    return config.stash[_SETTINGS]


def may_have_suite(config: pytest.Config) -> bool:
    """Whether folders or plugins may give system files."""
    folders = settings_of(config).systems_directories
    adds_files = config.hook.pytest_dlperf_system_files.get_hookimpls()
    return any(folder.is_dir() for folder in folders) or bool(adds_files)


def number_of_hosts(config: pytest.Config) -> int:
    """Count the hosts to launch on: 0 for this machine alone, and after a mistake."""
    try:
        if not (settings_of(config).may_launch_on_hosts and may_have_suite(config)):
            return 0  # without the imports that reading a list of hosts costs
        from pytest_dlperf.launch.choosing import launcher_and_hosts
        from pytest_dlperf.plugin.session import launchers_of

        return len(launcher_and_hosts(settings_of(config), launchers_of(config))[1])
    except UsageError:
        return 0


@contextmanager
def ending_session() -> Iterator[None]:
    """Turn a user's mistake into pytest's usage error, which ends the session."""
    try:
        yield
    except UsageError as error:
        from pytest_dlperf.report.texts import plain

        raise pytest.UsageError(plain(str(error))) from error


def start(config: pytest.Config) -> DlperfSession:
    """Read the suite and register the session's part of the plugin, at the first call."""
    if _SESSION not in config.stash:
        from pytest_dlperf.plugin.session import DlperfSession

        session = DlperfSession(config, settings_of(config))
        if is_any_given(config) or may_have_suite(config):
            try:
                session.open()
            except UsageError:
                session.resume_gc()
                raise
        session.register()
        config.stash[_SESSION] = session
    return config.stash[_SESSION]


def start_early(config: pytest.Config) -> None:
    """Start before collection where an option asks for it, or where workers may.

    The controller of workers collects nothing itself, and has to hand them the index of logs. It
    reports a mistake only if a worker's tests ask for cases.
    """
    if is_any_given(config):
        with ending_session():
            start(config)
    elif config.pluginmanager.has_plugin("dsession"):
        try:
            if may_have_suite(config):
                start(config)
        except UsageError as error:
            config.pluginmanager.register(_Mistake(error), "dlperf-mistake")


def own_tests(config: pytest.Config) -> list[tuple[Path, Callable[..., object]]]:
    """Return the project's own tests that ask for cases: their files and functions."""
    return config.stash.setdefault(_OWN_TESTS, [])


def without_tests_of_unnamed_folders(
    collector: pytest.Collector, found: list[pytest.Item | pytest.Collector]
) -> list[pytest.Item | pytest.Collector]:
    """Drop the project's own tests that ask for cases where nobody named their folder."""
    if collector.path not in collector.config.stash.get(_UNNAMED, ()):
        return found
    from pytest_dlperf.plugin.cases import CASE_FIXTURES

    return [one for one in found if CASE_FIXTURES.keys().isdisjoint(_fixtures_of(one))]


def _fixtures_of(node: pytest.Item | pytest.Collector) -> Iterable[str]:
    return getattr(node, "fixturenames", ())


def parametrize(metafunc: pytest.Metafunc, asked: Iterable[str]) -> None:
    """Parametrize a test that asks for our fixtures with its cases."""
    config, definition = metafunc.config, metafunc.definition
    from pytest_dlperf.plugin.cases import CASE_FIXTURES, METRIC_FIXTURE, not_collected

    # Of the tests that come with the package, a system file has those of its own cases.
    system_file = getattr(definition.parent, "system_file", None)
    asked = set(asked)
    if system_file is None and not asked.isdisjoint(CASE_FIXTURES):
        if not is_in_named_folder(definition.path, definition.session):
            config.stash.setdefault(_UNNAMED, set()).add(definition.path)
            return
        own_tests(config).append((definition.path, metafunc.function))
    session = None
    if _MISTAKE not in config.stash:
        try:
            session = start(config)
        except UsageError as error:
            config.stash[_MISTAKE] = error
    if session is None and hasattr(config, "workerinput"):
        raise not_collected(config.stash[_MISTAKE])

    with_metric = METRIC_FIXTURE in asked
    if with_metric and asked.isdisjoint(CASE_FIXTURES):
        raise not_collected(
            f"{METRIC_FIXTURE} is a metric of a case: ask for {' or '.join(CASE_FIXTURES)} as well"
        )
    for fixture in CASE_FIXTURES:
        if fixture in asked:
            names = [fixture, METRIC_FIXTURE] if with_metric else [fixture]
            given = session.parameters(names, system_file) if session else []
            metafunc.parametrize(names, given)
            with_metric = False


@contextmanager
def collecting(config: pytest.Config) -> Iterator[None]:
    """End the session with a mistake found while collecting, before other errors."""
    try:
        yield
    finally:
        if _SESSION in config.stash:
            config.stash[_SESSION].resume_gc()
        if _MISTAKE in config.stash and not hasattr(config, "workerinput"):
            mistake = _Mistake(config.stash[_MISTAKE])
            config.pluginmanager.register(mistake, "dlperf-mistake")
            mistake.tell()


class _Mistake:
    """A mistake that ends the session, once it is known that tests of ours were to run."""

    def __init__(self, error: UsageError) -> None:
        self._error = error
        self._is_told = False

    def tell(self) -> NoReturn:
        """End the session."""
        self._is_told = True
        with ending_session():
            raise self._error

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """End the controller's session if a worker collected nothing because of it."""
        if report.failed and str(self._error) in report.longreprtext:
            self.tell()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Suppress errors of reports that follow from the mistake."""
        try:
            return (yield)
        except Exception:
            if not self._is_told:
                raise
            return []

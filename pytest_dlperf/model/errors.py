"""Errors by their consequence; ``plugin`` translates them to pytest.

A message says what is wrong, where it stands (file and line, option, host) and what to do.
"""

from __future__ import annotations


class DlperfError(Exception):
    """The base of every error that a user may see."""


class UsageError(DlperfError):
    """The user made a mistake: in an option, a file or the environment. Nothing runs."""


class CannotMeasureError(DlperfError):
    """A case cannot be measured here, and nothing is broken: its test is skipped."""


class BrokenError(DlperfError):
    """Something that should work does not: a host, a lock, a disk, a database. The test fails."""


class UnfitHostsError(BrokenError):
    """Hosts do not answer or are in use, whatever is to run there."""


class NotStartedError(BrokenError):
    """A probe that a case needs broke on its hosts, so the case itself was not started."""

"""Training on more devices is as much faster as the baseline says."""

from pytest_dlperf.suite.test_suite import test_speedup

__all__ = ["test_speedup"]

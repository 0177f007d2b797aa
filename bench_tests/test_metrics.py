"""Whatever else a system has judged is as good as its baseline says."""

from pytest_dlperf.suite.test_suite import test_metric

__all__ = ["test_metric"]

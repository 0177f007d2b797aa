"""Each training run is as fast as its baseline says."""

from pytest_dlperf.suite.test_suite import test_throughput

__all__ = ["test_throughput"]

"""The command ``pytest-dlperf``: what can be said of a suite and its baselines without a run."""

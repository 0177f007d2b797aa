"""Training logs: how their steps look, where they lie, and the throughput that they show."""

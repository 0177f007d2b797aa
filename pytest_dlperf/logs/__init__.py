"""Training logs: how their steps look, where they lie, and the numbers that they show."""

"""Performance regression tests for distributed deep-learning training, as pytest cases."""

"""The gate: a measurement held against a baseline gives a verdict."""

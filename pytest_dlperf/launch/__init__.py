"""Runs cases: chooses and leases hosts, starts a run on them, watches it and ends it."""

"""Runs that an engine queues: submitted, watched and collected."""

"""Faults that a run may meet, with each launcher, and what is left of the run afterwards.

The tests run some of them; ``benchmarks/faults.py`` runs all and prints the table of them.
"""

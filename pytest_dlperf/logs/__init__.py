"""Training logs: how they are read, where they lie, and the numbers that they show.

From bytes to a run: ``lines`` gives blocks of whole lines, ``records`` finds the steps in them, and
``tracks`` number them and follow each process to the window's end. ``steady`` takes the window of
each rank; ``published`` counts as the original did. ``facts`` holds what the log says to the case,
and ``metrics`` finds and reduces the declared numbers. ``reading`` does all that for one log,
``run`` for those of a run.

When a number is declared or recorded, ``cross_check`` holds it against all else that its lines say.
"""

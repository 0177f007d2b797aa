"""Training logs: how they are read, where they lie, and the numbers that they show.

From bytes to a run: ``lines`` gives blocks of whole lines, ``records`` finds the steps in them, and
``tracks`` number them and follow each process to the window's end. ``steady`` takes the window of
each rank; ``published`` counts as the original did. ``throughput`` does all that for one log,
``run_logs`` for those of a run.

A run is held against its case (``fact_check``) and what follows its window (``second_run``). When
a number is declared or recorded, ``cross_check`` holds it against all else that its lines say.
Declared metrics are found by ``metric_numbers`` and reduced by ``run_metrics``.
"""

"""Training logs: how they are read, where they lie, and the numbers that they show.

From bytes to a run: ``reader`` and ``lines`` give whole lines, ``records`` finds the steps on them,
``numbering`` counts these. ``steady`` collects a window (``steps``) of the ``values`` of each of
``streams``; ``published`` counts as the original did. ``throughput`` does all that for one log,
``run_logs`` for those of a run.

What is held against the number: the case (``fact_check``), units (``units``), and what each of
``judges`` suspects. Declared metrics are found by ``scan`` and reduced by ``run_metrics``.
"""

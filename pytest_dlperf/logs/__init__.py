"""Training logs: how they are read, where they lie, and the numbers that they show.

From bytes to a run: ``reader`` and ``lines`` give whole lines, ``records`` finds the steps on them,
``numbering`` counts these. ``ranked`` or ``shared`` collects a window (``steps``) of ``values``;
``published`` counts as the original did. ``throughput`` does all that for one log, ``run_logs`` and
``opinions`` for those of a run.

What is held against the number: facts (``fact_check``), what follows the window (``behind``), known
trainers (``neighbours``), units and forms of numbers (``units``, ``forms``), when the lines came
(``arrivals``, ``witness``). Declared metrics are found by ``scan`` and reduced by ``run_metrics``.
"""

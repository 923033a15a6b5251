"""The legal splits of a graph: ``search_space``, then ``enumeration`` and ``unmeasured``.

Imports cuts and planner; of Optuna only the ranges of a trial's parameters.
"""

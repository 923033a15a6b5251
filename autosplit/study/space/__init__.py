"""The legal splits of a graph: ``search_space``.

Imports cuts and planner; of Optuna only the ranges of a trial's parameters.
"""

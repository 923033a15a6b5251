"""Costs corrected by measurements: ``cost_correction``, whose algebra is ``gaussian_posterior``.

Imports cuts and planner; nothing of Optuna.
"""

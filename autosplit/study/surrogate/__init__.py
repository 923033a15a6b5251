"""Costs corrected by measurements: ``correction``, whose algebra is ``posterior``.

Imports the planner; nothing of Optuna.
"""

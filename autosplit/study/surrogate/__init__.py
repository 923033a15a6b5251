"""Costs corrected by measurements: ``cost_correction``, whose algebra is ``gaussian_posterior``.

``deployment_correction`` does the same for deployments on equal cores.

Imports cuts and planner; nothing of Optuna.
"""

"""Benches: where candidates are built and measured.

Read ``interface`` (the protocol that a study uses), ``local`` (this machine and its servers) and
``isolated`` (a local bench in a worker process).

Imports the other packages of hardware, and the planner for cost models.
"""

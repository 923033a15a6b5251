"""Benches: where candidates are built and measured.

Read ``interface`` (the protocol that a study uses), ``local`` (this machine and its servers),
``isolated`` and ``worker`` (a local bench in a worker process, and the process's side of it).

Imports the other packages of hardware, and the planner for cost models.
"""

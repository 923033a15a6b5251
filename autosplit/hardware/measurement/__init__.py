"""Measurements of pipelines, and the comparison of their outputs with a reference.

Read ``results`` (the values), ``measure`` (period and latency of one pipeline, and of
several in turns), ``open_loop`` (items that come by themselves), ``baselines`` (the unsplit runs),
``reference`` (what computes the expected outputs), ``parity`` (how outputs are compared) and
``sequences`` (how streams are).

Imports ``hardware.execution``, ``hardware.devices`` and the frontend.
"""

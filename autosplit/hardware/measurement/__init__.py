"""Measurements of pipelines, and the comparison of their outputs with a reference.

Read ``results`` (the values), ``measure`` (period and latency of one pipeline, and of several
interleaved), ``open_loop`` (load tests at a given rate), ``baselines`` (the unsplit runs),
``reference`` (what computes the expected outputs), ``parity`` (how outputs are compared) and
``sequences`` (how whole streams are compared).

Imports ``hardware.execution``, ``hardware.devices`` and the frontend.
"""

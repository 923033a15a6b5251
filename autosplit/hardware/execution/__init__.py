"""Pipelines: stages that work on different items at the same time.

Read ``wiring`` (which tensor goes where; pure), ``channel`` and ``edges`` (how tensors travel),
``engine`` (the threads) and ``pipeline`` (what callers use). ``event`` is what a trace records.

Imports graph and errors, and the protocol of a stage in ``hardware.runtimes.interface``.
"""

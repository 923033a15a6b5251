"""Pipelines: stages that work on different items at the same time.

Read ``wiring`` (which tensor goes where; pure), ``edges`` (the channels that
tensors travel through), ``engine`` (the threads) and ``pipeline`` (what callers use).
``tensor_channel`` carries tensors between processes, ``shared_memory`` on one machine.

Imports graph and errors, and the protocol of a stage in ``hardware.runtimes.interface``.
"""

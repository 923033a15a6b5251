"""Pipelines: stages that work on different items at the same time.

Read ``stage_spec`` (what a stage is), ``wiring`` (which tensor goes where; pure), ``streams``
(items and states), ``engine`` (the threads) and ``pipeline`` (what callers use).
An engine calls stages on any host by ``open``, ``run`` and ``close``, and reports one that hangs.

Imports graph and errors, and of ``hardware.runtimes`` the names and the protocol of a stage.
"""

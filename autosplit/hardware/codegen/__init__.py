"""Kernels: scheduled, compiled once, and linked into stages.

Read in this order:

- ``kernels``: PrimFuncs to object files, from the cache where it holds them.
- ``schedules``: which schedule a kernel gets: from a database, or by one of the ``rules``.
- ``link``: a stage as a program that calls kernels, in memory or as a file.
- ``target``, ``toolchain``: what code is compiled for, and what links it.
- ``tuning``: finds schedules by trial and adds them to a database.

May import ``lowering``, ``hardware.devices``, ``hardware.execution.wiring`` and ``hardware.cache``.
"""

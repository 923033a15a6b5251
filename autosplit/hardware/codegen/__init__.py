"""Kernels: scheduled, compiled once, and linked into stages.

Read in this order:

- ``kernels``: PrimFuncs to object files, from the cache where it holds them.
- ``schedules``: which schedule a kernel gets.
- ``link``: a stage as a program that calls kernels, in memory or as a file.
- ``target``, ``toolchain``: what code is for, and what links it.
- ``tuning``, ``tuning_database``: schedules found by trial, and where they are stored.

May import ``lowering``, ``hardware.devices``, ``hardware.execution.wiring`` and ``hardware.cache``.
"""

"""Schedules by rule: what a kernel computes and the registers of the target decide its loops.

Read in this order:

- ``products``: packed convolutions and matrix products, by a tile of the output in registers.
- ``plain``: pools, reductions, elementwise and copying kernels.
- ``blocks``: what the rules share.
"""

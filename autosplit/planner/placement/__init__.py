"""Devices: which of them a split uses, and devices that share cores.

``canonical`` says which splits with empty stages are the same, ``device_subsets`` plans for any
number of stages under contention, ``shared_resources`` for devices that share cores.

Imports ``problem``, ``partition`` and ``solve``.
"""

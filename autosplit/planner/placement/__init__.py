"""Devices: their order, and which of them a split uses.

``device_order`` plans for unequal devices, ``canonical`` says which splits with empty stages are
the same, ``device_subsets`` plans for any number of stages.
Imports ``problem`` and ``solve``.
"""

"""Devices: their order, which of them a split uses, and how many a stage has.

``deployments`` plans stages, replicas and threads on equal cores, ``deployment_lists`` lists the k
best and the Pareto front. ``core_kinds`` plans deployments on cores of several kinds,
``unlike_devices`` with replicas on devices that differ, ``shared_resources`` on devices that share
cores. ``device_order`` plans for unequal devices, ``canonical`` says which splits with empty stages
are the same, ``device_subsets`` plans for any number of stages.

Imports ``problem``, ``exact``, ``near_orders``, ``batch`` and ``solve``.
"""

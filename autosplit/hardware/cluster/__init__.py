"""Stages on a Ray cluster: an actor for each replica, tensors from actor to actor.

Read ``connection`` (the cluster, its nodes, and the start of an actor), ``pipeline``, which starts
the actors of stages, ``replica``, its side of one, ``actor``, what runs on the nodes, and
``watch``, which notices their end. ``nodes`` profiles a model on a node and measures the
paths between nodes.
Ray places the actors; items and tensors go through ``hardware.execution.tensor_channel``.

Imports devices, runtimes, execution, and of profiling the fit of link costs.
"""

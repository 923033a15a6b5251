"""Stages on a Ray cluster: an actor for each replica.

Read ``connection`` (the cluster, its nodes, and files that are sent there), ``pool``, which starts
actors and keeps idle ones for later, and ``pipeline``, with the actors that run stages.
``nodes`` profiles a model on a node and measures the link to it.
Ray places the actors and carries the tensors: on this node in a compiled graph for each replica, to
other nodes by calls.

Imports devices, runtimes, execution, and of profiling the fit of link costs.
"""

"""Devices and the connections to them.

Read ``device`` (spelling and pinning) first. ``rpc`` holds the connections to TVM RPC servers, and
notices the loss of one; ``session`` opens one. ``processor`` compares a target with this processor;
``core_kinds`` and ``system_files`` read what Linux says of the machine. ``ray_nodes`` chooses the
nodes of a Ray cluster.

Imports nothing of ``hardware``.
"""

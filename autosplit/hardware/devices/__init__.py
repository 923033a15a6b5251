"""Devices and the connections to them.

Read ``device`` (spelling and pinning) first. ``rpc`` holds the connections to TVM RPC servers,
``session`` opens one, ``server_connection`` makes the
calls and notices the loss of a server. ``processor`` compares a target with this processor;
``core_kinds`` and ``system_files`` read what Linux says of the machine.
``ray_nodes`` chooses the nodes of a Ray cluster.

Imports nothing of ``hardware``.
"""

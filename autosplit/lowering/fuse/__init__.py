"""Fusing a model once, before any cut.

Read in this order:

- ``lowered``: the result, a ``FusedGraph`` and the Relax call of each of its ops (``lower``).
- ``passes``: the passes that produce it (``fuse``), with ``constants`` among them.
- ``reader``: walks the fused ``main`` and enters ops and tensors.
- ``attribution``: which source nodes each op came from.
- ``indices``: which integers an input may hold, and which are drawn at random.
- ``tensors``: the call of an op, and shapes, bytes and types.
"""

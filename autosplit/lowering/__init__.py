"""From a Relax module to a graph of fused ops.

Read in this order:

- ``fuse``: the passes that simplify, legalise and fuse a module, and what each fused op is called.
- ``external``: layers that a code generator outside TVM compiles, as ops of the same graph.
- ``states``: which ops keep a state, and the pairs of inputs and outputs that may be one.
- ``convex``: which sets of ops can be taken out of the graph and run by themselves.

May import ``frontend``, ``graph``, ``cuts`` and ``errors``.
"""

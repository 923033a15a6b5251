"""External backends: code generators outside TVM, whose layers are ops of the graph.

Read in this order:

- ``backend``: a backend, by object or by name, and the regions that the user asks for.
- ``composites``: layers taken out of ``main`` before it is lowered (``partition``).
- ``regions``: the layers of one stage merged again and compiled (``generate``).
"""

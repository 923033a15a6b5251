"""The least latency of one item on accelerators that hold little, and a CPU beside them.

- ``placement``: what a placement costs.
- ``least_latency``: the best one. It uses ``integer_program``, the question as a solver takes it,
  and for graphs of many blocks ``block_path``, which asks it for one of the ``serial_blocks`` at a
  time (``block_parts``).

Imports ``problem``, ``batch`` and ``solve``.
"""

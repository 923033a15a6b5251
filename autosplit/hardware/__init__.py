"""Everything that touches the hardware: devices, kernels, stages, measurements.

Read in this order:

- ``devices``: what there is, and the connections to servers.
- ``codegen``: kernels compiled for a target, linked into stages.
- ``runtimes``: what computes a stage, behind one interface.
- ``profiling``: op times and link costs, as the planner takes them.
- ``execution``: the wiring of a split, and the pipeline that runs its stages.
- ``cluster``: stages, profiles and links on the nodes of a Ray cluster.
- ``measurement``: periods with their spread, and the comparison with a reference.
- ``compiled_model``: a model with its kernels and its runtime; here the rooms come together.
  ``model_options`` checks what it is read with.
- ``batches``: op times of models whose outputs are equal, at one batch or several.
- ``isolation`` and ``bench``: the same in a process of its own.
- ``cache``: files that are made once.

Imports lowering, frontend and what all rooms may import.
"""

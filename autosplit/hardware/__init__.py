"""Everything that touches the hardware: devices, kernels, stages, measurements.

Read in this order:

- ``devices``: the names of devices, pinning to cores, and the connections to servers.
- ``codegen``: kernels compiled for a target, linked into stages.
- ``runtimes``: the runtimes that compute stages, behind one interface.
- ``profiling``: op times and transfer costs, in the form that the planner takes.
- ``execution``: the wiring of a split, and the pipeline that runs its stages.
- ``cluster``: stages, profiles and links on the nodes of a Ray cluster.
- ``measurement``: periods with their spread, and the comparison with a reference.
- ``compiled_model``: a model with its kernels and its runtimes; it combines the packages above.
  ``model_options`` checks the options that a model is read with.
- ``batches``: op times at one batch or several, for runtimes whose outputs are equal.
- ``isolation`` and ``bench``: building and measuring candidates, also in a worker process.
- ``cache``: files that are computed once and kept on the disk.

Imports lowering, frontend and what all rooms may import.
"""

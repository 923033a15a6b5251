"""The order of numbers in memory: channels last, and weights as kernels read them.

Read in this order:

- ``channels_last``: the pass that follows the layout through ``main``.
- ``ops``: how each op is written with channels last; ``order``: what that is.
- ``tiles``: what part of an output a kernel computes in registers.
- ``convolution``, ``matmul``: products with packed weights.
"""

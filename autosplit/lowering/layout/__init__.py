"""Memory layouts: channels last, and weights packed in the order in which kernels read them.

Read in this order:

- ``channels_last``: the pass that follows the layout through ``main``.
- ``ops``: the rewriting of each op to channels last; ``order``: the axes of that layout.
- ``tiles``: what part of an output a kernel computes in registers.
- ``convolution``, ``matmul``: products with packed weights.
"""

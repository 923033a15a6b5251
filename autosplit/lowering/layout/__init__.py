"""The order of numbers in memory: channels last, and weights as kernels read them.

Read in this order:

- ``channels_last``: the pass that follows the layout through ``main``.
- ``tiles``: what part of an output a kernel computes in registers.
- ``convolution``: convolutions with packed weights; ``sums``: ONNX's Sum as additions.
"""

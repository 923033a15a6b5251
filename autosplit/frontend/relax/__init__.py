"""Relax modules: read ``file`` (JSON or an object), then ``names`` (to a source model).

``saved_module`` refuses modules that could run code. ``kernel_bounds`` keeps kernels inside their
buffers. ``main_function`` rewrites the function that is split; ``expressions`` reads what it
computes.
"""

"""Relax modules: read ``file`` (TVMScript, JSON or an object), then ``names`` (to a source model).

``script`` and ``saved_module`` refuse what could run code, ``allow_list`` lists what may be there.
``kernel_bounds`` keeps kernels inside of their buffers, with the ``intervals`` of their indices.
``main_function`` rewrites the function that is split; ``expressions`` reads what it computes.
"""

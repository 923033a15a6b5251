"""Relax modules: read ``file`` (TVMScript, JSON or an object), then ``names`` (to a source model).

``script`` and ``saved_module`` refuse what could run code, ``allow_list`` lists what may be there.
``main_function`` rewrites the function that is split.
"""

"""Work in a process of its own, which may crash, hang or exhaust the memory.

Read ``process`` (``Worker``: the asking side, and how every interpreter and linker is started) and
``worker`` (the process it starts).

Imports errors and the reading of /proc alone: a worker starts before anything large is imported.
"""

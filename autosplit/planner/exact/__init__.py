"""The exact search over a table of downsets.

``layered_search`` is the core: layers of cuts, stages as arcs, partial paths. ``downset_table`` and
``stage_loads`` weigh all stages of a table, ``windows`` tells which cuts a layer may hold, and
``downset_layers`` is both as a layered network. The uses: ``dynamic_program`` (least period, least
latency), ``k_best``, ``pareto``; ``search`` proves the best split of a table.
Imports ``problem``.
"""

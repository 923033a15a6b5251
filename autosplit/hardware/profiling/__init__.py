"""Costs for the planner.

``timing`` repeats and times calls. ``profile_cache`` stores the op times that a runtime measures,
``transfer_costs`` measures links, ``cost_table`` makes the planner's costs of both, ``graph_file``
reads and writes them as JSON.

Imports ``devices`` and ``measurement``.
"""

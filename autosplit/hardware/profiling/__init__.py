"""Costs for the planner.

``timing`` repeats and times calls. ``profile_cache`` stores the op times that a runtime measures,
``transfer_costs`` measures links, ``cost_table`` makes the planner's costs of both, ``graph_file``
writes them as JSON and reads them.

Imports ``devices`` and ``measurement``.
"""

"""What a search is asked: costs, constraints and the arithmetic of a split.

``cost_model`` has the costs, ``runtime_costs`` those of each runtime that competes for a stage,
``evaluation`` the reference arithmetic of a split, ``deployment`` that of stages with replicas and
threads, ``constraints`` the conditions, ``graph_file`` the JSON format of cost models,
``contention`` costs that depend on the number of busy devices, ``shares`` what devices share.
``problem`` contracts all that to arrays, ``scaling`` makes costs whole numbers.
Imports nothing else of the planner.
"""

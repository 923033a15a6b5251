"""Many cost models at once: what a study asks after each trial.

``stage_table`` stores all stages of a space; ``many_costs`` times them under many models and finds
the best split for each; ``best_paths`` lists the best splits for one. ``neighbourhood`` chooses
cuts where all are too many. ``evaluation`` times given splits as arrays, ``deployments`` given
deployments. Imports ``problem``, ``partition`` and ``solve``.
"""

"""Graphs with too many downsets to list.

``cut_ranges`` tells what a period says of each cut. ``cut_bound`` bounds the period by minimum cuts
(``min_cut``), ``parallel_bound`` by divisible ops. ``narrow`` lists the few cuts that a better
split could have, ``anytime`` searches small tables again and again.
Imports ``problem`` and ``exact``.
"""

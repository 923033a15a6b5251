"""A run of a study: open it, run its trials, compare the best ones, and give a verdict.

Read in this order: ``benches``, ``open``, ``run``, ``stopping``, ``comparison``, ``verdict``.
Imports the other modules of ``autosplit.study``, except ``export``.
"""

"""Benchmarks: each module measures one claim and prints a table with its bars.

``python -m studies.benchmarks`` runs all of them, ``python -m studies.benchmarks.NAME`` one.
``result`` is what each of them prints and writes; ``finished_study`` runs a study for those that
need one.
"""

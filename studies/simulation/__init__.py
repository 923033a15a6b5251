"""Simulated hardware for tests and benchmarks, on the interface of a real bench.

``bench``: known costs in place of hardware. The command line on such a bench:
``python -m studies.simulation ops=30 noise=0.01 run STUDY.toml``; no model is read.
"""

"""Stages in onnxruntime: ``runtime`` implements the interface on ``session``.

Ops are timed with onnxruntime's profiler.
"""

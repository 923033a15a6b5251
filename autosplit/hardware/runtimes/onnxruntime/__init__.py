"""Stages in onnxruntime: ``runtime`` implements the interface on ``session``.

``profile`` times ops with onnxruntime's profiler.
"""

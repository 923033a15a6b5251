"""Stages in onnxruntime: ``runtime`` implements the interface on ``session``."""

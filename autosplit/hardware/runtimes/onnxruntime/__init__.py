"""Stages in onnxruntime: ``runtime`` times ops with its profiler; ``session`` runs a model."""

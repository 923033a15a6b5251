"""Stages in onnxruntime: ``runtime`` implements the interface, ``stage`` holds a session.

``profile`` times ops with onnxruntime's profiler.
"""

"""ONNX files: read ``file`` (checked, shapes fixed), then ``importer`` (to Relax).

``shapes`` makes the inputs static. ``normalize`` and ``resize`` correct what TVM's converters
misread, and ``shape_arithmetic`` evaluates the small values that shapes are computed from.
"""

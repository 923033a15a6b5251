"""ONNX files: read ``file`` (checked, shapes fixed), then ``importer`` (to Relax).

``shapes`` makes the inputs static, ``branches`` replaces an If whose condition is known.
``normalize`` refuses nodes that TVM's converters misread, or corrects them by ``rewrites``;
``opaque`` imports nodes that the converters lack.
``single_node`` and ``static_shapes`` evaluate the small values that shapes are computed from.
"""

"""ONNX files: read ``file`` (checked, shapes fixed), then ``importer`` (to Relax).

``shapes`` makes the inputs static, ``branches`` replaces an If whose condition is known.
``normalize`` refuses what TVM's converters misread, or corrects it by ``rewrites``; what they
cannot convert is ``opaque``.
``single_node`` and ``static_shapes`` evaluate the small values that shapes are computed from.
"""

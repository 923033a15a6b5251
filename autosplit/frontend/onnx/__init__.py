"""ONNX files: read ``file`` (checked, shapes fixed), then ``importer`` (to Relax).

``name_table`` keeps the names of tensors, ``normalize`` corrects what TVM's converters misread, and
``shape_arithmetic`` evaluates the small values that shapes are computed from.
"""

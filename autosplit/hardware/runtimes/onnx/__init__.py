"""What runtimes of ONNX submodels share.

``runtime`` is their base class. ``submodels`` cuts an ONNX model, ``node_groups`` finds which ops
no cut may separate, ``static_shapes`` answers nodes that ask for a shape, ``model_file`` writes.
"""

"""Code that the runtimes of ONNX submodels share.

``runtime`` holds their base classes. ``submodels`` cuts an ONNX model, ``node_groups`` finds which
ops no cut may separate and derives op times from the times of executed nodes, ``model_file`` writes
ONNX files.
"""

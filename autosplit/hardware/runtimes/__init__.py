"""Runtimes that compute stages (TVM's virtual machine, onnxruntime, OpenVINO), one interface.

Read ``interface`` (the protocols), ``registry`` (the runtimes by name) and ``arrays`` (tensors
between runtimes) first. ``stage_files`` writes and loads the files of a stage.
``tvm``, ``onnxruntime`` and ``openvino`` are the runtimes; ``onnx`` holds the code that the
runtimes of ONNX submodels share.

Imports ``devices``, ``codegen``, ``profiling``, ``execution.wiring`` and ``measurement``. No
runtime imports ``compiled_model`` or another runtime.
"""

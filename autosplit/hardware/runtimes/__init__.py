"""What computes a stage: TVM's virtual machine, onnxruntime or OpenVINO, behind one interface.

Read ``interface`` (the protocols), ``registry`` (the runtimes by name) and ``arrays`` (tensors
between runtimes) first. ``stage_files`` writes and loads the files of a stage.
``tvm``, ``onnxruntime`` and ``openvino`` are the runtimes; ``onnx`` holds
what every runtime of ONNX submodels shares.

Imports ``devices``, ``codegen``, ``profiling``, ``execution.wiring`` and ``measurement``. No
runtime imports ``compiled_model`` or another runtime.
"""

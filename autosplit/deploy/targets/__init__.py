"""Programs that run an export without autosplit, and the files that are written for them.

``formats`` has the names of the formats and adds the files of one to an export.
``onnx_program`` writes a wiring file for the stages' ONNX models, ``cpp_program`` the wiring of a
C++ program. The programs themselves are in the folders ``onnx`` and ``cpp``, copied as they are.

Imports deploy's manifest, hardware and the modules at the top.
"""

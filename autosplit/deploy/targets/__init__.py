"""Programs beside autosplit that run an export, and what is written for them beside ``split.json``.

``formats`` has the names of the formats and adds the files of one to an export.
``onnx_program`` writes a wiring file for the stages' ONNX models, ``cpp_program`` the wiring of a
C++ program. The programs themselves are in the folders ``onnx`` and ``cpp``, copied as they are.

Imports deploy's manifest, hardware and the modules at the top.
"""

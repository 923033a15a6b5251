"""Programs of ``torch.export``: read ``archive`` (a .pt2 file without code), then ``importer``.

``onnx_export`` exports a program as ONNX and finds the program's nodes in it; ``checks`` refuses
programs that do more than compute; ``buffers`` turns buffers that a program updates into states.
Imports the frontend ``onnx``.
"""

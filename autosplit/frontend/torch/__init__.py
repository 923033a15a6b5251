"""Programs of ``torch.export``: read ``archive`` (a .pt2 file without code), then ``importer``.

``onnx_export`` makes an ONNX model of a program and says which node each of its nodes was made for;
``checks`` refuses what does more than compute; ``buffers`` makes states of those that the
program updates. Imports the frontend ``onnx``.
"""

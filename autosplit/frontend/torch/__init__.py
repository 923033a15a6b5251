"""Programs of ``torch.export``: read ``archive`` (a .pt2 file without code), then ``importer``.

``onnx_export`` makes an ONNX model of a program under the names of its nodes, and ``checks``
refuses what neither torch's exporter nor a split keeps; ``buffers`` makes states of those that the
program updates. Imports the frontend ``onnx``.
"""

"""Programs of ``torch.export``: read ``archive`` (a .pt2 file without code), then ``importer``.

On the way to Relax, ``decompose`` replaces ops that TVM's importer lacks, ``normalize`` corrects
those that it misreads, ``unsupported`` refuses what neither can, and ``origins`` keeps the names of
nodes.
"""

"""Reads a model and returns a Relax module that keeps the names of the source.

Read ``source`` first (what a frontend returns), then ``importing`` (the choice of the frontend),
then one of the frontends ``onnx``, ``torch`` and ``relax``. ``shapes`` makes inputs static and
``samples`` draws random items.

Imports ``errors``, ``extras`` and ``files`` of the project, and no other module. The packages onnx,
torch and tvm are imported late, by ``extras``.
"""

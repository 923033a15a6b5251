"""Reads a model and gives a Relax module in which the names of the source are kept.

Read ``source`` first (what a frontend returns), then ``importing`` (which frontend reads what),
then one of the frontends ``onnx``, ``torch`` and ``relax``. ``shapes`` makes inputs static and
``samples`` draws random items.

Imports ``errors`` and ``extras`` of the project, and no other room. The packages onnx, torch and
tvm are imported late, by ``extras``.
"""

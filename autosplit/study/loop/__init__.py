"""A run of a study, in the order of its files: ``benches`` and ``open``, then ``run`` until
``stopping``, then ``comparison`` and ``verdict``.

Imports all other packages of the room.
"""

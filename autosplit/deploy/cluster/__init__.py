"""Exports on a Ray cluster: an actor for each replica, tensors from actor to actor.

Read ``on_ray``, which starts the actors and makes the pipeline, ``replica``, its side of an actor,
and ``actor``, what runs on the nodes. Ray places the actors and notices their end; items and
tensors go through ``hardware.execution.tensor_channel``.

Imports the other modules of deploy but ``load``, and hardware.
"""

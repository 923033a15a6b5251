"""Real nets with seeded random weights, to try autosplit on without a network.

Read ``catalog`` first: it lists the nets and makes, writes and caches them. ``built_nets`` and
``stream_nets`` build those that no package ships, with ``onnx_builder``. ``weights`` fills any net
with random weights that keep its outputs finite and different. Imports ``hardware.cache``,
``errors``, ``extras``, ``files``, and onnx late.
"""

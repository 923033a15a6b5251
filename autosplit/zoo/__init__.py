"""Real nets with seeded random weights, to try autosplit on without a network.

Read ``catalog`` first: it lists the nets and makes, writes and caches them. ``built_nets`` builds
those that no package ships, ``weights`` fills any net with random weights that keep its outputs
finite and different. Imports ``hardware.cache``, ``errors``, ``extras``, ``files``, and onnx late.
"""

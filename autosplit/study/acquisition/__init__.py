"""Which split to measure next.

``history`` is what is known. ``sampler`` gives a trial its split, chosen by ``proposals``: for the
period with ``expected_improvement`` and its ``candidate_sources``, for the latency with
``least_latency``. Imports space, surrogate, record and results.
"""

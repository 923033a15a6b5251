"""Which split to measure next.

``history`` is what is known. ``sampler`` gives a trial its split, chosen by ``proposals``: for the
period alone with ``expected_improvement`` and its ``candidate_sources``, else with
``multi_objective`` and its ``front_candidates``. Imports space, surrogate, persistence and
trials.worker_identity.
"""

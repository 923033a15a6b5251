"""The trials of one or many workers.

``results``: counts, the best trial, the baselines; ``writer``: finishes a trial; ``heartbeat``,
``worker_identity`` and ``recovery``: find and replace workers that ended; ``host_lock``: one at a
time on a host. Imports persistence and progress.
"""

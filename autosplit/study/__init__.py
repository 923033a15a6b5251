"""Studies: Optuna keeps the trials, the planner proposes them, hardware measures them.

Read in this order:

- ``config``: the study file;
- ``space``: the legal splits, and how a trial stands for one;
- ``surrogate``: costs corrected by what was measured;
- ``acquisition``: which split to measure next, and the sampler that gives it to a trial;
- ``persistence``: storages, stored documents, and the private names of Optuna;
- ``trials``: results, heartbeats, locks and recovery of the workers' trials;
- ``loop``: open a study, run its trials, the final comparison and the verdict;
- ``progress`` and ``export``: what a user sees and gets.

The way of a trial: ``acquisition.sampler`` gives the split, ``loop.run`` has it measured,
``trials.writer`` stores it. The package may import deploy and what is below it.
"""

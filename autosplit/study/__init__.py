"""Studies: Optuna keeps the trials, the planner proposes them, hardware measures them.

Read in this order:

- ``config``: the study file;
- ``record``: the document of a trial and that of a study; ``documents`` makes their parts,
  ``results`` says what the trials come to;
- ``space``: the candidates, and how a trial stands for one;
- ``surrogate``: costs corrected by what was measured;
- ``history``: what the trials measured;
- ``acquisition``: which candidate to measure next; ``sampler``: gives it to a trial;
- ``storage``: databases;
- ``workers``: who measures, the locks of this host, and the trials of workers that died;
- ``loop``: open a study, run its trials, the final comparison and the verdict;
- ``export``: what a user gets.

The way of a trial: ``sampler`` gives it a candidate, ``loop.run`` has that measured
and stores it in its ``record``. The package may import deploy and what is below it.
"""

"""Studies: Optuna keeps the trials, the planner proposes them, hardware measures them.

Read in this order:

- ``config``: the study file;
- ``record``: the document of a trial and that of a study; ``documents`` makes their parts,
  ``results`` summarises the trials;
- ``space``: the candidates, and their keys, which identify them in the record of a trial;
- ``surrogate``: costs corrected by measurements;
- ``history``: what the trials measured;
- ``acquisition``: which candidate to measure next; ``sampler``: gives it to a trial;
- ``storage``: databases;
- ``workers``: the worker processes, the locks of this host, and the trials of workers that died;
- ``loop``: open a study, run its trials, the final comparison and the verdict;
- ``export``: writes the chosen deployment to a folder.

``sampler`` gives a trial its candidate; ``loop.run`` has the candidate measured and stores the
figures in the trial's ``record``. The package may import deploy and what is below it.
"""

"""Reports for people: documents of commands, pictures, the HTML page and the dashboard.

Read in this order:

- ``documents``  studies read from databases, and the JSON documents of the commands
- ``drawing``    pictures and charts
- ``html``       the page of a study
- ``dashboard``  optuna-dashboard over a study
- ``trace``      the trace of a pipeline run for Perfetto
- ``doctor``     checks of the machine

It imports from every room but ``cli``, and only ``cli`` imports from it.
"""

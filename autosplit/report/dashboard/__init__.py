"""optuna-dashboard over a study, read-only.

- ``app``  the dashboard of one study
- ``front``  its first page: the answer, what is measured now, two trials side by side
- ``guard``, ``server``  which requests are answered, and the HTTP server with its bounds
- ``snapshot``  the copy of the study with notes and pictures

optuna-dashboard and waitress come with the extra ``dashboard``.
"""

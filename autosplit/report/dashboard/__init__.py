"""The report of a study, live, beside optuna-dashboard, read-only.

- ``app``  the pages of one study, and the server over them
- ``guard``, ``server``  which requests are answered, and the HTTP server with its bounds
- ``optuna_copy``  the study as optuna-dashboard shows it

optuna-dashboard and waitress come with the extra ``dashboard``.
"""

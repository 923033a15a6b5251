"""A live, read-only dashboard: the report of a study beside optuna-dashboard.

- ``app``  the pages of one study, and their server with its limits
- ``guard``  which requests are answered
- ``optuna_copy``  the study as optuna-dashboard shows it

optuna-dashboard and waitress come with the extra ``dashboard``.
"""

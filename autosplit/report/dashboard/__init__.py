"""optuna-dashboard over a study, read-only unless asked otherwise.

- ``app``  the dashboard of one study
- ``front``  its first page: the answer, what is measured now, two trials side by side
- ``guard``, ``server``  which requests are answered, and the HTTP server with its bounds
- ``snapshot``  the copy of the study with notes, pictures and plots
- ``artifacts``, ``plots``  its pictures and its plotly figures

optuna-dashboard, waitress and plotly come with the extra ``dashboard``.
"""

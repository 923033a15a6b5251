"""The page of a study and its notes.

- ``page``  the page: verdict, pictures, trials, machine and steps
- ``compare``  two trials side by side
- ``tables``  the tables of page and notes
- ``notes``  notes in Markdown, which the dashboard shows
- ``study_file``  the study file that the page shows
"""

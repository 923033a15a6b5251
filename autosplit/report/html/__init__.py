"""The page of a study and its notes.

- ``page``  the page: verdict, pictures, trials, machine and steps
- ``tables``  the tables of page and notes
- ``notes``  notes in Markdown, which the dashboard shows
- ``inline_svg``, ``study_file``  pictures and the study file as parts of the page
"""

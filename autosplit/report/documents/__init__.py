"""Studies read from databases, and the JSON documents of the commands with their tables.

- ``study_reader``  which study a user means, opened read-only
- ``record``        the study as plain values, which pictures, page and dashboard show
- ``study``, ``plan``, ``inspection``, ``manual_split``, ``part``  one command's document each
"""

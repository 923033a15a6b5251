"""The study file: ``study_file`` (the whole), ``sections`` (its parts and the objectives).

``assumed`` writes one for a model that has none.

Imports hardware.devices for the cores there are.
"""

"""The study file: ``study_file`` (the whole), ``sections`` (its parts and the objectives).

Imports hardware.devices for the cores there are.
"""

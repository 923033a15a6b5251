"""The study file: ``study_file`` (the whole), ``sections``, ``objectives``, ``explain`` (errors
and former names). Imports hardware.devices for the cores there are.
"""

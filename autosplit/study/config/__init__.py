"""The study file: ``study_file`` (the whole), ``sections``, ``objectives``, ``explain`` (errors).

``former_names``: keys of earlier versions. Imports hardware.devices for the cores there are.
"""

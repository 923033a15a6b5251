"""Stages in OpenVINO.

``runtime`` makes them, ``stage`` runs a compiled model on all cores of the process, ``process`` on
some of them, ``profile`` times ops inside the whole model, ``rewrites`` what OpenVINO computes
wrongly.
"""

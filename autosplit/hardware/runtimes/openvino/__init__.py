"""Stages in OpenVINO.

``runtime`` makes them and times ops inside the whole model, ``stage`` runs a compiled model on all
cores of the process, ``process`` on some of them, ``rewrites`` what OpenVINO computes wrongly.
"""

"""Stages in OpenVINO.

``runtime`` makes them and times ops inside the whole model, ``stage`` runs a compiled model in this
process, ``process`` in another one, ``rewrites`` changes models that OpenVINO computes wrongly.
"""

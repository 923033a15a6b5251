"""Stages in OpenVINO.

``runtime`` makes them, ``stage`` runs a compiled model, ``workers`` keeps OpenVINO's threads on all
cores of the process, ``process`` runs a stage on some of them, ``profile`` times ops inside the
whole model, ``rewrites`` what OpenVINO computes wrongly.
"""

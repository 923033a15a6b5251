"""Stages in OpenVINO.

``runtime`` makes them, ``stage`` runs a compiled model, ``workers`` keeps OpenVINO's threads on one
set of several cores, ``process`` runs a stage on another set, ``profile`` times ops inside the
whole model, ``old_softmax`` and ``relayed_inputs`` rewrite what OpenVINO computes wrongly.
"""

"""Stages in OpenVINO.

``runtime`` makes them, ``stage`` runs a compiled model, ``workers`` keeps OpenVINO's threads on the
stages' cores, ``profile`` times ops inside the whole model, ``old_softmax`` rewrites
what OpenVINO computes wrongly.
"""

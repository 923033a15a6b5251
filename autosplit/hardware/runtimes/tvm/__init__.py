"""Stages in TVM's virtual machine.

``runtime`` implements the interface; ``stage`` runs on this machine or on a server. ``profile``
times ops inside the model on local cores, each by itself elsewhere.
"""

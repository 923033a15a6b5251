"""Stages in TVM's virtual machine.

``runtime`` implements the interface; ``stage`` runs on this machine or on a server.
``instrumented_profile`` times ops inside the model on local cores, ``single_op_profile`` each op
by itself elsewhere.
"""

"""Stages in TVM's virtual machine.

``runtime`` implements the interface; ``stage`` runs stages on this machine or on a server.
``profile`` times ops: on local cores inside the model, elsewhere each op by itself.
"""

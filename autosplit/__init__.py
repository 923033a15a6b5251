"""autosplit: the split of a neural network into pipeline stages that runs fastest on the devices it shall run on."""

__version__ = "0.1.0"

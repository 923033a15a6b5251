"""The package autosplit/hardware/runtimes/onnxruntime."""

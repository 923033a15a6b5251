"""The package autosplit/frontend/onnx."""

"""The package autosplit/hardware/runtimes/tvm."""

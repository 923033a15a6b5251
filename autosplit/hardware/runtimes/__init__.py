"""The package autosplit/hardware/runtimes."""

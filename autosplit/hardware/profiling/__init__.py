"""The package autosplit/hardware/profiling."""

"""The package autosplit/hardware/measurement."""

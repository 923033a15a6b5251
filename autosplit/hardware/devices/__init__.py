"""The package autosplit/hardware/devices."""

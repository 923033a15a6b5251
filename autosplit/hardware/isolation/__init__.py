"""The package autosplit/hardware/isolation."""

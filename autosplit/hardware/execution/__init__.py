"""The package autosplit/hardware/execution."""

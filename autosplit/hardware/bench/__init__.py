"""The package autosplit/hardware/bench."""

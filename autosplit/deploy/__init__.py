"""The package autosplit/deploy."""

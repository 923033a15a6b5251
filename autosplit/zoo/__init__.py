"""The package autosplit/zoo."""

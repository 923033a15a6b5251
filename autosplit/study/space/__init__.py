"""The package autosplit/study/space."""

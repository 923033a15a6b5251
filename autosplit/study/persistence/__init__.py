"""The package autosplit/study/persistence."""

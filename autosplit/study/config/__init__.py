"""The package autosplit/study/config."""

"""The package autosplit/study/acquisition."""

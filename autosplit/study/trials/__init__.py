"""The package autosplit/study/trials."""

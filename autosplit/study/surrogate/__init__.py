"""The package autosplit/study/surrogate."""

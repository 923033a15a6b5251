"""The package autosplit/study/loop."""

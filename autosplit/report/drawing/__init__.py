"""The package autosplit/report/drawing."""

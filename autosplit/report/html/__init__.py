"""The package autosplit/report/html."""

"""The package autosplit/report/dashboard."""

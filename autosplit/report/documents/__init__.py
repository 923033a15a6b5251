"""The package autosplit/report/documents."""

"""The package autosplit/frontend/torch."""

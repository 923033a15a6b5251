"""The package autosplit/frontend/relax."""

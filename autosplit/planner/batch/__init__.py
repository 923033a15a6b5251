"""The package autosplit/planner/batch."""

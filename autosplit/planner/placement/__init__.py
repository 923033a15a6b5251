"""The package autosplit/planner/placement."""

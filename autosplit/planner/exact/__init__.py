"""The package autosplit/planner/exact."""

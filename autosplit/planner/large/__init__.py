"""The package autosplit/planner/large."""

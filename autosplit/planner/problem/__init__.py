"""The package autosplit/planner/problem."""

"""Pictures of a split, of its balance and of a run, as PNG or SVG bytes, without a display or a system program."""

from autosplit.report.pictures_balance import stage_balance
from autosplit.report.pictures_graph import split_graph
from autosplit.report.pictures_timeline import Event, timeline

__all__ = ["Event", "split_graph", "stage_balance", "timeline"]

"""Pictures of a split, of its balance and of a run, as PNG or SVG bytes, without a display or a system program."""

from autosplit.report.drawing.balance import stage_balance
from autosplit.report.drawing.graph import split_graph
from autosplit.report.drawing.timeline import Event, timeline

__all__ = ["Event", "split_graph", "stage_balance", "timeline"]

"""Show a study: its trials, the best split with what crosses its cuts, the baselines and the verdict.

  autosplit show quickstart.toml          by its study file
  autosplit show quickstart.db            by its database
  autosplit show NAME --storage URL       by its name in a storage
  autosplit show quickstart.db -f json    one JSON document

A running study can be looked at; nothing is changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from autosplit.cli import output

HELP = "show a study: trials, best split, baselines and verdict"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the study and its storage."""
    parser.add_argument(
        "study",
        metavar="STUDY",
        help="a study file (.toml), a database (.db), or a name in --storage",
    )
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="where the study is (default: AUTOSPLIT_STORAGE, or NAME.db)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the study."""
    from autosplit.report.documents.study import document
    from autosplit.report.documents.study_reader import find_study

    reader = find_study(args.study, args.storage)
    with reader.open() as study:
        emit(document(study, reader.url), args.format)
    return 0


def emit(found: Mapping[str, Any], form: str) -> None:
    """Print the document of a study: as JSON, or as tables for people."""
    if form == "json":
        output.emit_json(found)
        return
    from autosplit.report.documents.study import tables

    for title, columns, rows in tables(found):
        output.emit_table(title, columns, rows)
        output.emit_line("")
    if verdict := found["verdict"]:
        output.emit_line(verdict["text"])
    if found.get("export"):
        output.emit_line(f"exported to {found['export']}")

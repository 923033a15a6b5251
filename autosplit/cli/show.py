"""Show a study: trials, the best split with the tensors that cross its cuts, baselines, verdict.

  autosplit show quickstart.toml          by its study file
  autosplit show quickstart.db            by its database
  autosplit show NAME --storage URL       by its name in a storage
  autosplit show quickstart.db -f json    one JSON document

The study may be running; it is not changed.
"""

from __future__ import annotations

import argparse

from autosplit.cli import options, output

OPTIONS = options.STUDY


def run(args: argparse.Namespace) -> None:
    """Print the study."""
    from autosplit.report.documents.record import read
    from autosplit.report.documents.study import shown, written
    from autosplit.report.documents.study_reader import find_study

    reader = find_study(args.study, args.storage)
    with reader.open() as study:
        record = read(study)
    output.emit(args.format, written(record, reader.url), shown(record))

"""Write a study as one HTML page that needs no network.

  autosplit report quickstart.toml -o report.html      by its study file
  autosplit report quickstart.db -o report.html        by its database
  autosplit report NAME --storage URL -o report.html   by its name in a storage
  autosplit report quickstart.toml -o report.html --trace run.json   with a timeline

The study may be running; it is not changed.
"""

from __future__ import annotations

import argparse

from autosplit.cli import options, output
from autosplit.files import require_other

OPTIONS = (
    *options.STUDY,
    *options.of("""
        -o, --output FILE   page to write [required]
        --trace FILE        show a run that `bench DIR --trace FILE` wrote
    """),
)


def run(args: argparse.Namespace) -> None:
    """Write the page, and print its path."""
    from autosplit.report.documents.record import read
    from autosplit.report.documents.study_reader import find_study
    from autosplit.report.html import page

    reader = find_study(args.study, args.storage)
    require_other(args.output, args.study, reader.file, args.trace)
    with reader.open() as study:
        record = read(study)
    page.write(record, args.output, args.trace)
    output.emit(args.format, {"file": str(args.output)}, f"wrote {args.output}")

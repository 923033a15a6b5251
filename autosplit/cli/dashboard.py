"""Show the report of a study in the browser, live, beside optuna-dashboard.

  autosplit dashboard quickstart.toml         a study by its study file or its database
  autosplit dashboard NAME --storage postgresql+psycopg://USER@HOST/NAME

The dashboard is read-only, and by default only this machine can reach it. The study may be running.
Needs optuna-dashboard and waitress: pip install 'autosplit[dashboard]'
"""

from __future__ import annotations

import argparse
import contextlib

from autosplit.cli import options, output
from autosplit.errors import ConfigError

OPTIONS = (
    *options.of("""
        --port PORT      port, 0 for a free one [default: 8080]
        --host ADDR      address to serve on (default: 127.0.0.1)
        --allow-remote   let other machines connect, without a password
    """),
    *options.STUDY,
)


def run(args: argparse.Namespace) -> None:
    """Print the URL of the study's page and serve it until interrupted."""
    from autosplit.report.dashboard import app
    from autosplit.report.documents.study_reader import find_study

    if args.allow_remote and not args.host:
        raise ConfigError("--allow-remote needs --host ADDR, an address of this machine or 0.0.0.0")
    reader = find_study(args.study, args.storage)
    host = args.host or "127.0.0.1"
    server, url = app.open_server(reader, host, args.port, allow_remote=args.allow_remote)
    with contextlib.closing(server):
        if args.allow_remote:
            output.note("autosplit: everyone who can reach this address can read the study")
        output.emit(args.format, {"url": url}, url)
        # Through a pipe the URL would stay in the buffer while the server runs.
        output.flush()
        server.run()
    raise KeyboardInterrupt  # only Ctrl-C ends ``run``, and waitress does not raise it again

"""Show a study in the browser: trials with notes, stage tables, pictures and plots.

  autosplit dashboard quickstart.toml         a study by its study file or its database
  autosplit dashboard NAME --storage postgresql+psycopg://USER@HOST/NAME
  autosplit dashboard quickstart.db --writable      allow notes and deletions

By default the dashboard is read-only and only this machine can reach it. The study may be running.
Needs optuna-dashboard, plotly and waitress: pip install 'autosplit[dashboard]'
"""

from __future__ import annotations

import argparse
import sys

from autosplit.cli import options, output
from autosplit.errors import ConfigError

HELP = "show a study in the browser, by default read-only and for this machine only"


def configure(parser: argparse.ArgumentParser) -> None:
    """The study, where to serve it and what to allow."""
    options.add_study(parser)
    parser.add_argument(
        "--port", type=int, default=8080, help="port, 0 for a free one (default: 8080)"
    )
    parser.add_argument("--host", metavar="ADDR", help="address to serve on (default: 127.0.0.1)")
    parser.add_argument(
        "--allow-remote", action="store_true", help="let other machines connect, without a password"
    )
    parser.add_argument(
        "--writable", action="store_true", help="let the browser change and delete the study"
    )


def run(args: argparse.Namespace) -> int:
    """Print the URL of the study's page and serve it until interrupted."""
    from autosplit.report.dashboard import app
    from autosplit.report.documents.study_reader import find_study

    if args.allow_remote and not args.host:
        raise ConfigError("--allow-remote needs --host ADDR, an address of this machine or 0.0.0.0")
    reader = find_study(args.study, args.storage)
    options = {"writable": args.writable, "allow_remote": args.allow_remote}
    server, url = app.open_server(reader, args.host or "127.0.0.1", args.port, **options)
    with server:
        if args.allow_remote:
            verb = "change and delete" if args.writable else "read"
            output.note(f"autosplit: everyone who can reach this address can {verb} the study")
        output.emit(args.format, {"url": url, "writable": args.writable}, url)
        # Through a pipe the URL would stay in the buffer while the server runs.
        sys.stdout.flush()
        server.serve_forever()
    return 0

"""Serve an exported split over HTTP, by the Open Inference Protocol (v2) of Triton's clients.

  autosplit serve out/                          on http://127.0.0.1:8000
  autosplit serve out/ --port 0 --delay 2       on a free port; a batch waits 2 ms to be full
  autosplit serve out/ --ray                    the replicas on a Ray cluster

An interrupt finishes the requests that are being computed. /metrics has counters for Prometheus.
Needs starlette and uvicorn: pip install 'autosplit[serve]'
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.extras import require

if TYPE_CHECKING:
    from autosplit.hardware.execution.pipeline import Pipeline

AFTER_INTERRUPT = "; requests that were being computed are finished"

OPTIONS = (
    *options.of("""
        --port PORT    port, 0 for a free one [default: 8000]
        --host ADDR    address to serve on [default: 127.0.0.1]
        --name NAME    name of the model (default: that of the export)
        --delay MS     longest time that a batch waits to be full (default: that of the export, or
                       0)
        --queue N      items inside at most; others get 503 (default: what the pipeline holds)
        --body BYTES   longest body of a request [default: 100 MB]
        --hint {triton,ovms,ray}  print what another server should be told to run an export of one
                       stage, and end
        --ray          run the replicas on a Ray cluster, that of RAY_ADDRESS
    """),
    *options.EXPORT,
)


def run(args: argparse.Namespace) -> None:
    """Print the URL and serve until interrupted."""
    from autosplit.deploy import manifest_file
    from autosplit.deploy.server.hints import hint

    if args.hint:
        text = hint(manifest_file.read(args.folder), args.hint)
        document = {"server": args.hint, "configuration": text}
        output.emit(args.format, document, text.rstrip("\n").split("\n"))
        return
    for package in ("httptools", "psutil", "starlette", "uvicorn"):
        require(package, "serve")
    from autosplit.deploy.server import app

    name = args.name or manifest_file.read(args.folder).model.name
    if not name or "/" in name:
        raise ConfigError(f"the model is called '{name}'; give one without a slash by --name")
    with app.listen(args.host, args.port) as listener:
        server = app.Server(partial(_load, args), name, int(args.body), args.queue)
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        output.emit(args.format, {"url": url, "model": name}, f"{url} serves '{name}'")
        output.flush()
        app.http_server(server).run(sockets=[listener])


def _load(args: argparse.Namespace) -> Pipeline:
    from autosplit.deploy.load import load

    loaded = load(args.folder)
    delay = loaded.delay_ms or 0.0 if args.delay is None else args.delay
    pipeline: Pipeline = loaded.on_ray() if args.ray else loaded
    return pipeline.with_delay(delay)

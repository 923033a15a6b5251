"""A dashboard that serves in a thread, and a client for it."""

import contextlib
import http.client
import json
import threading
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

from waitress import wasyncore

from autosplit.report.dashboard.app import open_server


@dataclass(frozen=True)
class Client:
    """Asks the server on ``port``; ``url`` is its first page."""

    port: int
    url: str = ""

    def ask(self, path, method="GET", body=None, **headers):
        """Underscores in names of headers are dashes; PORT in a value is the server's port."""
        sent = {k.replace("_", "-"): v.replace("PORT", str(self.port)) for k, v in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return SimpleNamespace(status=answer.status, headers=answer.headers, body=answer.read())

    def study(self):
        """The study as the page gets it."""
        answer = self.ask("/api/studies/1")
        assert answer.status == 200
        return dict(json.loads(answer.body))


@contextlib.contextmanager
def running(server, url=""):
    """The server, answering in a thread."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield Client(int(server.effective_port), url)
    finally:
        # The loop ends when it has nothing left to watch.
        server.trigger.pull_trigger(partial(wasyncore.close_all, server._map))
        thread.join()
        server.task_dispatcher.shutdown()


@contextlib.contextmanager
def dashboard(reader, **options):
    server, url = open_server(reader, port=0, **options)
    with running(server, url) as client:
        yield client

"""The first page of the dashboard: the answer, what is measured now, two trials side by side.

Its other pages are those of optuna-dashboard, marked as read-only.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from autosplit.report.documents.record import Study, Trial
from autosplit.report.html import compare, page, tables
from autosplit.report.html.tables import plain
from autosplit.units import counted, milliseconds

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PATHS = ("/", "/compare", "/events")
_AGAIN = 2000  # ms until a page asks for news again; an open answer would hold a thread
# optuna-dashboard has no read-only look: what could change the study is hidden by its icons.
_READ_ONLY = "".join(
    f'button:has([data-testid="{icon}"]), label:has([data-testid="{icon}"]), '
    for icon in ("EditIcon", "DeleteIcon", "AddBoxIcon", "DriveFileRenameOutlineIcon")
)
_STYLE = (
    "<style>#autosplit { position: fixed; right: 12px; bottom: 12px; z-index: 2000; margin: 0; "
    "padding: 6px 12px; border-radius: 6px; background: #1c1f24; color: #fff; "
    "font: 14px system-ui, sans-serif; } #autosplit a { color: #8cc4ff; } "
    f'{_READ_ONLY}[class*="MuiCard"]:has([data-testid="UploadFileIcon"]) '
    "{ display: none !important; }</style>"
)


class Front:
    """Answers for ``PATHS`` from the record of a study, and leaves the others to ``app``.

    ``path`` is the page of the study in ``app``; ``version`` changes when the study does.
    """

    def __init__(self, app: WSGIApplication, record: Study, path: str, version: str) -> None:
        self._app, self._record, self._path, self._version = app, record, path, version

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path = environ.get("PATH_INFO", "")
        if path.startswith("/dashboard"):
            return self._marked(environ, start_response)
        if path not in PATHS:
            return self._app(environ, start_response)
        kind, body = "text/html; charset=utf-8", b""
        if path == "/events":
            kind, body = "text/event-stream", self._news().encode()
        elif path == "/compare":
            body = self._comparison(parse_qs(environ.get("QUERY_STRING", ""))).encode()
        else:
            body = self._answer().encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        start_response("200 OK", [*headers, ("Cache-Control", "no-store")])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self) -> str:
        study = self._record
        title = f"{study.name}: autosplit"
        parts = self._parts(page.sections(study))
        return self._document(title, tables.question(study, plain), parts)

    def _parts(self, parts: Iterator[str]) -> Iterator[str]:
        yield from parts
        if len(self._record.trials) > 1:
            yield page.section("Two trials side by side", self._form(*self._pair({})))

    def _comparison(self, query: dict[str, list[str]]) -> str:
        pair = self._pair(query)
        if len(pair) < 2:
            return self._document("compare", "There are no two trials yet", iter(()))
        first, second = pair
        heading = f"Trial {first.number} beside trial {second.number}"

        def parts() -> Iterator[str]:
            yield self._form(first, second)
            yield from compare.sections(self._record, first, second)

        return self._document(f"{heading}: autosplit", heading, parts())

    def _pair(self, query: dict[str, list[str]]) -> tuple[Trial, ...]:
        """The trials asked for; otherwise the best one and the one that was best before it."""
        trials = {str(t.number): t for t in self._record.trials}
        best = self._record.best()
        before = self._record.best(best.number) if best else None
        defaults = [t for t in (before, best, *trials.values()) if t]
        chosen = [trials[key] for k in "ab" for key in query.get(k, ())[:1] if key in trials]
        rest = [t for t in dict.fromkeys(defaults) if t not in chosen]
        return tuple([*chosen, *rest][:2])

    def _form(self, first: Trial, second: Trial) -> str:
        selects = ""
        for key, chosen in (("a", first), ("b", second)):
            options = "".join(
                f"<option{' selected' if t is chosen else ''}>{t.number}</option>"
                for t in self._record.trials
            )
            selects += f'<label>Trial <select name="{key}">{options}</select></label> '
        return f'<form class="bar" action="/compare">{selects}<button>Compare</button></form>'

    def _document(self, title: str, heading: str, parts: Iterator[str]) -> str:
        live = (
            f'<p role="status" data-live="/events" data-version="{self._version}">'
            f"{html.escape(self._status())}</p>"
            '<nav class="soft">Read-only: nothing here changes the study. '
            '<a href="/">The answer</a> · '
            '<a href="/compare">Two trials side by side</a> · '
            f'<a href="{self._path}">All trials in optuna-dashboard</a></nav>'
        )
        lead = f"Study {self._record.name}, autosplit {self._record.version}".rstrip()
        return page.document(title, lead, heading, parts, live, page.LIVE_POLICY)

    def _news(self) -> str:
        news = {"text": self._status(), "version": self._version}
        return f"retry: {_AGAIN}\ndata: {json.dumps(news)}\n\n"

    def _status(self) -> str:
        """What is measured now, in one line."""
        trials = self._record.trials
        complete = sum(t.state == "complete" for t in trials)
        text = f"{counted(complete, 'trial')} measured. "
        running = [t for t in trials if t.state == "running"]
        if not running:
            stopped = plain(self._record.stopped, 400)
            return text + (f"Stopped: {stopped}." if stopped else "None is being measured now.")
        for trial in running:
            cuts = " | ".join(", ".join(plain(op, 80) for op in cut) for cut in trial.cuts)
            text += f"Trial {trial.number} is being measured"
            text += f", cut after {cuts}" if cuts else ""
            if trial.predicted_ms is not None:
                text += f", predicted {milliseconds(trial.predicted_ms)}"
            text += ". "
        return text.rstrip()

    def _marked(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """A page of optuna-dashboard with a line that leads back and says that it is read-only."""
        # Without conditions, so that no page from before is shown that has no such line.
        for condition in ("HTTP_IF_MODIFIED_SINCE", "HTTP_IF_NONE_MATCH", "HTTP_RANGE"):
            environ.pop(condition, None)
        started: list[Any] = []

        def start(*answer: Any) -> Callable[[bytes], object]:
            started[:] = answer
            return lambda data: None

        body = b"".join(self._app(environ, start))
        status, headers = started[0], started[1]
        if dict(headers).get("Content-Type", "").startswith("text/html") and body:
            line = '<p id="autosplit">Read-only. <a href="/">The answer</a></p>'
            body = body.replace(b"</body>", f"{_STYLE}{line}</body>".encode())
            headers = [
                pair for pair in headers if pair[0] not in ("Content-Length", "Last-Modified")
            ]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]

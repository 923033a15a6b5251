"""A guard in front of optuna-dashboard, which has no password and checks neither Host nor Origin.

Without the guard any page on the web could reach the dashboard through the browser of its user (DNS
rebinding). The guard refuses requests for another host, from pages of another origin, and with
methods that could write. Its headers keep a page from loading or running anything from elsewhere.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from autosplit.report.html.page import LIVE_POLICY

_SAFE_METHODS = ("GET", "HEAD")
# The dashboard's parallel coordinates compile their shaders with eval; its styles are inline.
_PAGE_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_REPORT_POLICY = f"{LIVE_POLICY}; frame-ancestors 'none'"
_REFUSAL_POLICY = "sandbox; default-src 'none'"


@dataclass(frozen=True)
class Guard:
    """A WSGI application that passes safe requests on to the one that ``current`` returns.

    ``hosts`` are the names this server answers to, lower case and without port. With
    ``any_address`` it answers to every numeric address too: a rebound name is never numeric.
    """

    current: Callable[[], WSGIApplication]
    hosts: Collection[str]
    any_address: bool = False

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        if not self._answers_to(environ.get("HTTP_HOST", "")):
            reason = "this server does not answer to that Host"
            return _refuse(start_response, "403 Forbidden", reason)
        origin = environ.get("HTTP_ORIGIN")
        if origin is not None and not self._answers_to(origin.partition("://")[2]):
            reason = "this server does not answer to pages of that Origin"
            return _refuse(start_response, "403 Forbidden", reason)
        if environ["REQUEST_METHOD"] not in _SAFE_METHODS:
            return _refuse(start_response, "405 Method Not Allowed", "the dashboard is read-only")
        path = environ.get("PATH_INFO", "")
        safe = _headers(_PAGE_POLICY if path.strip("/") else _REPORT_POLICY)
        replaced = {"access-control-allow-origin", *(name.lower() for name, _ in safe)}

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            passed = [(name, value) for name, value in headers if name.lower() not in replaced]
            return start_response(status, [*passed, *safe], exc_info)

        # optuna-dashboard expects this header in every request
        environ.setdefault("HTTP_ACCEPT_ENCODING", "")
        return self.current()(environ, start)

    def _answers_to(self, host: str) -> bool:
        name = _without_port(host)
        if name in self.hosts:
            return True
        return self.any_address and _ip_address(name.strip("[]")) is not None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this address."""
    address = _ip_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(text)
    return None


def _without_port(host: str) -> str:
    """The name in a Host header: ``[::1]`` of ``[::1]:80``."""
    host = host.strip().lower()
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _headers(policy: str) -> list[tuple[str, str]]:
    return [
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
    ]


def _refuse(start_response: StartResponse, status: str, reason: str) -> list[bytes]:
    body = f"{status}: {reason}\n".encode()
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    if status.startswith("405"):
        headers.append(("Allow", ", ".join(_SAFE_METHODS)))
    start_response(status, headers + _headers(_REFUSAL_POLICY))
    return [body]

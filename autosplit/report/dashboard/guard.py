"""A guard in front of a web application that has none, and a small server for it.

optuna-dashboard asks for no password and checks neither Host nor Origin, so a page anywhere on the web could reach it
through the browser of whoever runs it (DNS rebinding). The guard refuses what does not come for this server, refuses
writing unless it was asked for, and sends headers that keep the page from loading or running anything from elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from autosplit.errors import ConfigError, MachineError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_READS = ("GET", "HEAD")
# The dashboard's parallel coordinates compile their shaders with eval; its styles are set in place.
_PAGE = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ARTIFACT = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
_REPLACED = (
    "content-security-policy",
    "access-control-allow-origin",
    "x-content-type-options",
    "referrer-policy",
)


class Guard:
    """A WSGI application that lets through what is safe; ``current`` gives the application to ask, for each request.

    ``hosts`` are the names this server answers to, lower case without port; where ``any_address`` is set, every
    numeric address is one (a rebound name is never numeric). ``writable`` lets other methods than GET and HEAD through,
    from this server's own pages only.
    """

    def __init__(
        self,
        current: Callable[[], WSGIApplication],
        hosts: Iterable[str],
        *,
        any_address: bool = False,
        writable: bool = False,
    ) -> None:
        self._current, self._hosts = current, frozenset(hosts)
        self._any_address, self._writable = any_address, writable

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        host = environ.get("HTTP_HOST", "")
        if not self._knows(host):
            return _refuse(
                start_response, "403 Forbidden", "this server does not answer to that Host"
            )
        if environ["REQUEST_METHOD"] not in _READS:
            if not self._writable:
                return _refuse(
                    start_response,
                    "405 Method Not Allowed",
                    "read-only; start it with --writable to change",
                )
            if not _same_origin(environ, host):
                return _refuse(
                    start_response, "403 Forbidden", "a page of another origin may not write here"
                )
        policy = _ARTIFACT if environ.get("PATH_INFO", "").startswith("/artifacts") else _PAGE

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            kept = [(name, value) for name, value in headers if name.lower() not in _REPLACED]
            return start_response(status, [*kept, *_headers(policy)], exc_info)

        environ.setdefault("HTTP_ACCEPT_ENCODING", "")  # the dashboard takes it for granted
        return self._current()(environ, start)

    def _knows(self, host: str) -> bool:
        name = _name(host)
        if name in self._hosts:
            return True
        if self._any_address:
            with contextlib.suppress(ValueError):
                return bool(ipaddress.ip_address(name.strip("[]")))
        return False


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without asking a name server what this address is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = (
            str(self.server_address[0]),
            int(self.server_address[1]),
        )
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is no error worth a line."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = 30  # seconds a client may be silent

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: standard error is for what the user can act on."""


def bind(host: str, port: int, app: WSGIApplication) -> _Server:
    """A server listening on an address; port 0 picks a free one (see ``server_port``). One thread a request.

    Raises ConfigError for a port that cannot be, MachineError where the address or port cannot be had.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port} is none; give --port 1 to 65535, or 0 for a free one")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server = (_Server6 if family == socket.AF_INET6 else _Server)((host, port), _Handler)
    except OSError as error:
        raise MachineError(_why(host, port, error)) from error
    server.set_app(app)
    return server


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server on this address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def address(host: str, port: int) -> str:
    """Host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _name(host: str) -> str:
    """The name in a Host header, without the port: ``[::1]:80`` is ``[::1]``."""
    host = host.strip().lower()
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def _same_origin(environ: WSGIEnvironment, host: str) -> bool:
    site = environ.get("HTTP_SEC_FETCH_SITE", "same-origin")
    origin = environ.get("HTTP_ORIGIN")
    return site in ("same-origin", "none") and (
        origin is None or origin.partition("://")[2].lower() == host.lower()
    )


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
        headers.append(("Allow", ", ".join(_READS)))
    start_response(status, headers + _headers(_ARTIFACT))
    return [body]


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use; give another with --port, or --port 0 for a free one"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; give one above 1023 with --port"
    return f"cannot listen on {address(host, port)}: {error.strerror or error}; give an address of this machine"

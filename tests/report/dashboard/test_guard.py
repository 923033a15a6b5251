"""The guard in front of the dashboard, without a server."""

from wsgiref.headers import Headers
from wsgiref.util import setup_testing_defaults

from autosplit.report.dashboard.guard import Guard, is_loopback

HOSTS = {"localhost", "127.0.0.1", "[::1]"}
METHODS = ["DELETE", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "MIGRATE"]


def application(environ, start_response):
    """An application that lets every origin read it."""
    start_response("200 OK", [("Access-Control-Allow-Origin", "*"), ("X-Kept", "yes")])
    return [b"page"]


def ask(path="/", method="GET", host="localhost", **more):
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": host, **more}
    setup_testing_defaults(environ)
    answers = []

    def start(status, headers, exc_info=None):
        answers.append((int(status.split()[0]), Headers(headers)))

    Guard(lambda: application, HOSTS)(environ, start)
    return answers[0]


def test_every_method_that_could_write_is_refused():
    answers = [ask("/api/studies/1", method) for method in METHODS]
    assert [(status, headers["Allow"]) for status, headers in answers] == [(405, "GET, HEAD")] * 7


def test_this_machine_is_answered_and_another_host_is_not():
    mine = ("localhost:80", "LOCALHOST", " 127.0.0.1:80", "[::1]:80")
    assert [ask(host=host, method=m)[0] for host in mine for m in ("GET", "HEAD")] == [200] * 8
    others = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]")
    assert [ask(host=host)[0] for host in (*others, "[::1")] == [403] * 7


def test_a_page_of_another_origin_is_refused():
    assert ask(HTTP_ORIGIN="http://localhost:8080")[0] == 200
    others = ("http://evil.example", "http://localhost.evil.example", "null")
    assert [ask(HTTP_ORIGIN=origin)[0] for origin in others] == [403] * 3


def test_headers_keep_others_out():
    _, headers = ask("/dashboard/studies/1")
    policy = "default-src 'self'; script-src 'self' 'unsafe"
    assert headers["Content-Security-Policy"].startswith(policy)
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["X-Kept"] == "yes"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_loopback_addresses_are_known():
    hosts = ("127.0.0.1", "127.9.9.9", "::1", "localhost")
    assert [is_loopback(h) for h in hosts] == [True] * 4
    others = ("0.0.0.0", "::", "10.0.0.1", "example.org", "")
    assert [is_loopback(h) for h in others] == [False] * 5

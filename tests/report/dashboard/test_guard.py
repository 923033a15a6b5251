"""The guard in front of the dashboard, without a server."""

from wsgiref.headers import Headers
from wsgiref.util import setup_testing_defaults

import pytest

from autosplit.report.dashboard.guard import Guard, is_loopback

HOSTS = {"localhost", "127.0.0.1", "[::1]"}
METHODS = ["DELETE", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "MIGRATE"]


def application(environ, start_response):
    """An application that lets every origin read it."""
    start_response("200 OK", [("Access-Control-Allow-Origin", "*"), ("X-Kept", "yes")])
    return [b"page"]


def ask(path="/", method="GET", host="localhost", *, guard=None, **more):
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": host}
    environ |= more
    setup_testing_defaults(environ)
    answers = []

    def start(status, headers, exc_info=None):
        answers.append((int(status.split()[0]), Headers(headers)))

    (guard or Guard(lambda: application, HOSTS))(environ, start)
    return answers[0]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_could_write_is_refused(method):
    status, headers = ask("/api/studies/1", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]", "[::1"],
)
def test_another_host_is_refused(host):
    assert ask(host=host)[0] == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8080", 200),
        ("http://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
    ],
)
def test_a_page_of_another_origin_is_refused(origin, status):
    assert ask(HTTP_ORIGIN=origin)[0] == status


@pytest.mark.parametrize("host", ["localhost:80", "LOCALHOST", " 127.0.0.1:80", "[::1]:80"])
def test_this_machine_is_answered(host):
    assert ask(host=host)[0] == ask(host=host, method="HEAD")[0] == 200


def test_any_address_is_numeric():
    guard = Guard(lambda: application, HOSTS, any_address=True)
    hosts = ("192.168.1.7:8080", "[2001:db8::1]:80", "rebound.evil.example:8080", "1.2.3.4.evil")
    assert [ask(host=host, guard=guard)[0] for host in hosts] == [200, 200, 403, 403]


def test_headers_keep_others_out():
    headers, policy = (
        ask("/dashboard/studies/1")[1],
        "default-src 'self'; script-src 'self' 'unsafe",
    )
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

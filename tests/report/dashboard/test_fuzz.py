"""Random requests against the dashboard of a study, drawn by seed: none changes it or breaks it."""

import contextlib
import random
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from autosplit.report.documents.study_reader import find_study
from tests.report.serving import dashboard

CALLS = 264
PATIENCE = 0.5  # seconds without a byte of the answer
METHODS = ("GET", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "\t")
PATHS = (
    "/", "/dashboard/studies/1", "/api/studies", "/api/studies/1", "/api/studies/1/1/note",
    "/api/studies/1/note", "/api/trials/1/tell", "/api/artifacts/1/1", "/artifacts/1/1/x",
    "/artifacts/1", "/csv/1", "/static/bundle.js", "/api/meta", "/api/studies/1/param_importances",
)  # fmt: skip
TAILS = ("", "/", "/../..", "%00", "%2e%2e%2fetc%2fpasswd", "?after=-1", "?after=x", "/9" * 99, "é")
NAMES = (
    "Host", "Origin", "Sec-Fetch-Site", "Content-Type", "Content-Length", "Range", "Expect",
    "Transfer-Encoding", "X-HTTP-Method-Override", "Cookie", "If-Modified-Since",
)  # fmt: skip
VALUES = (
    "", "0", "-1", "evil.example", "null", "chunked", "DELETE", "bytes=5-1", "\x00", "x" * 999,
    "application/json", "multipart/form-data; boundary=x", "100-continue", "http://x\udcff",
)  # fmt: skip
BODIES = ("", "{}", "[]", "null", '{"body": "x", "version": 99}', "\x00", '{"state": "Complete"}')


def request(draw):
    """One request; each part of it is wrong once in a few times."""
    path = draw.choice(PATHS) + (draw.choice(TAILS) if draw.random() < 0.4 else "")
    version = "HTTP/1.1" if draw.random() < 0.9 else draw.choice(("HTTP/1.0", "HTTP/9.9", ""))
    lines = [f"{draw.choice(METHODS)} {path} {version}", "Connection: close"]
    if draw.random() < 0.9:
        lines.append("Host: localhost")
    for _ in range(draw.choice((0, 0, 1, 2))):
        lines.append(f"{draw.choice(NAMES)}: {draw.choice(VALUES)}")
    body = draw.choice(BODIES)
    if draw.random() < 0.7:
        lines.append(f"Content-Length: {len(body)}")
    text = "\r\n".join(lines) + "\r\n\r\n" + body
    return text.encode("utf-8", errors="surrogateescape")


def answer(client, sent):
    """What the server sends before it closes the connection or waits for more of the request."""
    parts = []
    with socket.create_connection(("127.0.0.1", client.port), PATIENCE) as connection:
        connection.sendall(sent)
        with contextlib.suppress(TimeoutError):
            while part := connection.recv(2**16):
                parts.append(part)
    return b"".join(parts)


def test_no_request_changes_the_study_or_stops_the_dashboard(database):
    before, draw = database.read_bytes(), random.Random(13)
    with dashboard(find_study(str(database))) as client:
        page, statuses = client.study(), Counter[str]()
        requests = [request(draw) for _ in range(CALLS)]
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(partial(answer, client), requests))
        for sent, received in zip(requests, answers, strict=True):
            assert b"Traceback" not in received, sent
            assert b"root:" not in received, sent
            status = re.match(rb"HTTP/1\.\d (\d)", received)
            statuses[status[1].decode() + "xx" if status else "none"] += 1
        assert client.study() == page
    # Most requests are refused, some are answered, few are so broken that the server waits.
    assert statuses["4xx"] > CALLS / 2
    assert statuses["2xx"] > CALLS / 20
    assert statuses["none"] < CALLS / 20
    assert database.read_bytes() == before
    assert list(database.parent.iterdir()) == [database]

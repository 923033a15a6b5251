"""What travels between two processes, and who may connect."""

import hmac
import shutil
import socket
import subprocess
import threading

import ml_dtypes
import numpy as np
import pytest

from autosplit.hardware.execution.tensor_channel import connect, listen
from tests.hardware.fakes import in_time

KEY = b"k" * 32


def echo(channel):
    while True:
        channel.send(*channel.receive())


@pytest.fixture
def address():
    return listen("127.0.0.1", KEY, echo)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.array(7, dtype="int8"),
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array([1.5, 2], dtype=ml_dtypes.bfloat16),
    ],
    ids=["matrix", "strided", "scalar", "empty", "bool", "bfloat16"],
)
def test_a_tensor_arrives_as_it_was_sent(address, array):
    channel = connect(address, KEY)
    channel.send({"number": 3}, [array, array])
    message, arrays = in_time(channel.receive)
    assert message == {"number": 3}
    for arrived in arrays:
        assert (arrived.shape, arrived.dtype) == (array.shape, array.dtype)
        assert (arrived == array).all()
    channel.close()


def test_who_does_not_know_the_secret_is_not_served(address):
    with pytest.raises(OSError, match=r"secret|closed"):
        in_time(lambda: connect(address, b"x" * 32))


@pytest.fixture
def peer(address):
    """A connection that has read its question."""
    with socket.create_connection(address, 10) as peer:
        yield peer, peer.recv(32)


def test_an_answer_of_the_same_end_proves_nothing(address, peer):
    asked, question = peer
    with socket.create_connection(address, 10) as other:
        other.recv(32)
        other.sendall(question)
        asked.sendall(bytes(32) + other.recv(32))
    asked.recv(32)
    assert asked.recv(1) == b""


def test_a_header_of_any_size_is_not_read(peer):
    asked, question = peer
    asked.sendall(bytes(32) + hmac.digest(KEY, b"client" + question, "sha256"))
    asked.recv(32)
    asked.sendall(b"\xff" * 4)
    assert asked.recv(1) == b""


def test_who_waits_is_woken_by_close(address):
    channel = connect(address, KEY)
    closing = threading.Timer(0.05, channel.close)
    closing.start()
    with pytest.raises(OSError, match=r"closed|descriptor"):
        in_time(channel.receive)


@pytest.fixture
def certificates(tmp_path, monkeypatch):
    """A certificate for 127.0.0.1 that is its own authority, named as Ray names it."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    words = ["-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command.split(), *words, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.setenv("RAY_TLS_SERVER_KEY", str(key))
    for name in ("SERVER_CERT", "CA_CERT"):
        monkeypatch.setenv(f"RAY_TLS_{name}", str(certificate))


def test_where_ray_uses_tls_so_do_channels(certificates, address, monkeypatch):
    channel = connect(address, KEY)
    channel.send({}, [np.ones(300_000)])
    assert in_time(channel.receive)[1][0].sum() == 300_000
    channel.close()
    monkeypatch.setenv("RAY_USE_TLS", "0")
    with pytest.raises(OSError, match=r"closed|reset"):
        in_time(lambda: connect(address, KEY))

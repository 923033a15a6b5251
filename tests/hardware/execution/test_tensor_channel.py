"""What travels between two processes, and who may connect."""

import fcntl
import hmac
import os
import shutil
import socket
import subprocess
import threading

import ml_dtypes
import numpy as np
import pytest

from autosplit.hardware.execution import tensor_channel
from autosplit.hardware.execution.shared_memory import SharedArrays, SharedMemory
from autosplit.hardware.execution.tensor_channel import Channel, connect, listen
from tests.hardware.fakes import in_time

KEY = b"k" * 32


def echo(channel):
    while True:
        channel.send(*channel.receive())


@pytest.fixture
def address():
    return listen("127.0.0.1", KEY, echo)


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "sent"])
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
def test_a_tensor_arrives_as_it_was_sent(array, is_shared, monkeypatch):
    monkeypatch.setattr(tensor_channel, "IS_AVAILABLE", is_shared)
    channel = connect(listen("127.0.0.1", KEY, echo), KEY)
    assert channel.is_shared == is_shared
    for copies in (2, 3, 1):
        channel.send({"number": 3}, [array] * copies)
        message, arrays = in_time(channel.receive)
        assert message == {"number": 3}
        assert len(arrays) == copies
        for arrived in arrays:
            assert (arrived.shape, arrived.dtype) == (array.shape, array.dtype)
            assert (arrived == array).all()
    channel.close()


def test_what_lasts_does_not_change_with_the_next_message(address):
    channel = connect(address, KEY)
    arrived = []
    for number in range(3):
        channel.send({}, [np.full(4, number)])
        arrived += in_time(channel.receive)[1]
    assert [array[0] for array in arrived] == [0, 1, 2]


def test_lent_arrays_stay_when_the_lender_is_gone_and_leave_no_file():
    names = set(os.listdir("/dev/shm"))
    ours, theirs = map(Channel, socket.socketpair())
    shapes = [((2, 3), np.dtype("float32")), ((1,), np.dtype("int8"))]
    shared = SharedArrays(shapes)
    for array in shared.arrays:
        array[...] = 7
    theirs.lend({}, shared)
    matrix, number = ours.borrow(ours.receive()[0])
    shared.arrays[0][0, 0] = 8
    theirs.close()
    del array, shared
    assert matrix.tolist() == [[8, 7, 7], [7, 7, 7]]
    assert number.tolist() == [7]
    assert set(os.listdir("/dev/shm")) <= names


def test_many_arrays_take_few_open_files():
    before = len(os.listdir("/proc/self/fd"))
    shared = SharedArrays([((1,), np.dtype("int8"))] * 1000)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert len(shared.arrays) == 1000


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK], ids=["shrinks", "is too small"])
def test_memory_whose_reading_could_kill_is_refused(seals):
    ours, theirs = socket.socketpair()
    memory = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 7 if seals else 8)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    socket.send_fds(theirs, [b"0"], [memory])
    with pytest.raises(OSError, match="shared bytes for 8"):
        SharedMemory(ours).borrow(8)
    os.close(memory)


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

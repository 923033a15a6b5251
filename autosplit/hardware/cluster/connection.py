"""The connection of this process to a Ray cluster: files sent there and answers of its actors."""

from __future__ import annotations

import atexit
import contextlib
import logging
import socket
import ssl
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from os import environ
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import AutosplitError, ConfigError, MachineError, line_of
from autosplit.extras import require
from autosplit.files import sha256
from autosplit.hardware.execution.engine import stop_all
from autosplit.versions import VERSION

HANDSHAKE_S = 10.0
START_S = 300.0  # for an actor to be started and to load its stage
CONTENTS_BYTES = 1 << 30  # of files that stay in Ray's memory
# Values of up to so many bytes travel inside calls between nodes. Ray's default is 100 kB: larger
# values are stored, and the other node fetches them, which takes longer than a stage of 5 ms.
IN_CALLS = {"RAY_max_direct_call_object_size": str(8 << 20)}
_clusters: dict[str, str] = {}  # Ray's address of the cluster that each address led to
# Sizes and Ray's references of files by node, job and sha256, the most recently used last.
_contents: OrderedDict[tuple[str, str, str], tuple[int, Any]] = OrderedDict()
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # an empty SETTINGS frame of HTTP/2


def connected(address: str | None = None) -> Any:
    """Ray, connected to the cluster at ``address``.

    By default it is that of RAY_ADDRESS, else the one that this machine is in, else a new one here.
    Raises MachineError where Ray is missing, no cluster answers, or it has other versions, and
    where this process is connected to another cluster.
    """
    ray = require("ray", "ray")
    if ray.is_initialized():
        cluster = ray.get_runtime_context().gcs_address if address else ""
        if address and _clusters.get(address, address) != cluster:
            problem = f"Ray is connected to the cluster at '{cluster}', not to that at '{address}'"
            raise MachineError(f"{problem}; leave the address out, or call ray.shutdown() before")
        return ray
    # Exit handlers run in reverse order: if this ran after Ray's, the actors would seem lost.
    atexit.unregister(stop_all)
    atexit.register(stop_all)
    address = address or environ.get("RAY_ADDRESS")
    host, _, port = (address or "").rpartition(":")
    where = f"'{address or 'this machine'}'"
    try:
        if port.isdecimal() and "://" not in host:
            _require_server(host.strip("[]"), int(port))
        for name, value in IN_CALLS.items():
            environ.setdefault(name, value)  # Ray reads it here, and in each process it starts
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises errors of many kinds
        if "Version mismatch" in str(error):
            lines = map(str.strip, str(error).splitlines())
            versions = ", ".join(line for line in lines if line.startswith(("Ray:", "Python:")))
            raise MachineError(
                f"the Ray cluster at {where} has other versions ({versions}); "
                "install the same Ray and Python on every node"
            ) from error
        remedy = "start one with `ray start --head`, or give its address as HOST:6379"
        if "InvalidAuthToken" in "".join(traceback.format_exception(error)):  # as the cause
            remedy = "set RAY_AUTH_MODE=token, with the token of the cluster in ~/.ray/auth_token"
        raise MachineError(f"no Ray cluster at {where} ({line_of(error)}); {remedy}") from error
    if address:
        _clusters[address] = ray.get_runtime_context().gcs_address
    return ray


def put(file: Path, digest: str) -> Any:
    """Put a file with the sha256 ``digest`` into Ray's memory; returns Ray's reference to it.

    Files that were used last stay there, so the same stage is sent to a node once.
    """
    ray = connected()
    here = ray.get_runtime_context()
    # References of an earlier connection, to this cluster or another one, are not valid now.
    key = here.get_node_id(), here.get_job_id(), digest
    if key not in _contents:
        # An array, because Ray does not copy it once more.
        _contents[key] = file.stat().st_size, ray.put(np.fromfile(file, np.uint8))
    _contents.move_to_end(key)
    while len(_contents) > 1 and sum(size for size, _ in _contents.values()) > CONTENTS_BYTES:
        _contents.popitem(last=False)
    return _contents[key][1]


def answer(call: Any, name: str, seconds: float = START_S) -> Any:
    """Wait for the result of an actor's method; an AutosplitError of the method is raised here.

    Raises MachineError where the actor does not start, or not in time.
    """
    ray = connected()
    try:
        return ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise MachineError(
            f"{name} has no answer after {seconds:.0f} s; see `ray status` for who has its CPUs"
        ) from error
    except ray.exceptions.RayError as error:
        cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else None
        if isinstance(cause, AutosplitError):
            raise type(cause)(f"{name}: {cause}") from error
        raise MachineError(
            f"{name} does not run: {line_of(error, last=True)}; see `ray status`, and install "
            f"autosplit {VERSION} there"
        ) from error


def write_files(folder: Path, digests: Mapping[str, str], contents: Sequence[Any]) -> None:
    """Write files by name into a folder.

    Raises ConfigError for a name outside the folder, and for a sha256 that does not match.
    """
    for (name, digest), content in zip(digests.items(), contents, strict=True):
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"'{name}' lies outside its folder; move it beside the model")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        if sha256(file) != digest:
            raise ConfigError(f"'{name}' has another sha256 than recorded; export it again")


def _require_server(host: str, port: int) -> None:
    """Raises OSError unless a server of gRPC answers in time; Ray itself tries for minutes.

    Both sides of HTTP/2 begin with a SETTINGS frame: RFC 9113, section 3.4.
    """
    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection((host, port), HANDSHAKE_S))
        if environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            context = ssl.create_default_context(cafile=environ["RAY_TLS_CA_CERT"])
            context.load_cert_chain(environ["RAY_TLS_SERVER_CERT"], environ["RAY_TLS_SERVER_KEY"])
            context.set_alpn_protocols(["h2"])
            connection = opened.enter_context(context.wrap_socket(connection, server_hostname=host))
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS)
        if connection.recv(len(_SETTINGS))[3:4] != _SETTINGS[3:4]:
            problem = "it does not answer as Ray does; where it uses TLS, set RAY_USE_TLS"
            raise ConnectionError(problem)

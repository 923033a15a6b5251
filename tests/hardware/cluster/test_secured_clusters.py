"""Whole clusters with Ray's TLS and with its tokens: who does not belong to them is refused."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from autosplit.hardware.measurement.parity import compare
from tests.hardware.servers import HOST, free_port

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.integration
LIMIT_S = 240.0


def certificates(folder):
    """Ray's settings for a new certificate, which is its own authority."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder.mkdir()
    key, certificate = folder / "key.pem", folder / "cert.pem"
    addresses = dict.fromkeys([HOST, ray.util.get_node_ip_address()])
    names = ",".join([*(f"IP:{address}" for address in addresses), "DNS:localhost"])
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ray"
    words = ["-addext", f"subjectAltName={names}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *words, *files], check=True, capture_output=True)
    # Where a token lies in the home folder Ray would ask for it too.
    settings = {"RAY_AUTH_MODE": "disabled", "RAY_USE_TLS": "1", "RAY_TLS_SERVER_KEY": str(key)}
    return settings | {f"RAY_TLS_{n}": str(certificate) for n in ("SERVER_CERT", "CA_CERT")}


def tokens(token):
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


@contextlib.contextmanager
def cluster(environment):
    """The address of a cluster of two nodes, with resources ``left`` and ``right``."""
    address = f"{HOST}:{free_port()}"
    # The paths of Ray's sockets must be short.
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=4"]
    start += ["--object-store-memory=80000000", f"--node-ip-address={HOST}"]
    head = ["--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false"]
    head.append(f"--temp-dir={folder}")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for words, name in ((head, "left"), ([f"--address={address}"], "right")):
            log = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                [*start, *words, f'--resources={{"{name}": 1}}'],
                env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            stack.callback(end, process)
            deadline = time.monotonic() + LIMIT_S
            # With --block this is its last line.
            while b"--block" not in printed(log):
                assert process.poll() is None, printed(log).decode()
                assert time.monotonic() < deadline, printed(log).decode()
                time.sleep(0.2)
        yield address


def printed(log):
    return os.pread(log.fileno(), 1 << 20, 0)


def end(process):
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def folder(branches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    branches.split([["first"]]).export(folder)
    return folder


PROGRAM = """
import sys, numpy as np
import autosplit
from autosplit.errors import AutosplitError
folder, address, items, outputs = sys.argv[1:]
try:
    places = ["ray:left/cores:0", "ray:right/cores:0"]
    with autosplit.load(folder).on_ray(places, address) as pipeline:
        np.save(outputs, pipeline.run(np.load(items, allow_pickle=True)))
except AutosplitError as error:
    sys.exit(f"autosplit: {error}")
"""


def on_cluster(folder, environment, address, *files):
    """A program that runs the items of a file on a cluster and saves the outputs."""
    command = [sys.executable, "-c", PROGRAM, str(folder), address, *map(str, files)]
    return subprocess.run(command, env=environment, capture_output=True, timeout=LIMIT_S)


@pytest.mark.parametrize("means", ["tls", "token"])
def test_exports_run_on_secured_clusters_which_refuse_strangers(means, folder, branches, tmp_path):
    plain = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    plain["RAY_prestart_worker_first_driver"] = "0"  # one process for each CPU
    if means == "tls":
        member, other = certificates(tmp_path / "one"), certificates(tmp_path / "other")
    else:
        member, other = tokens("a" * 40), tokens("b" * 40)
    items = branches.items(5)
    files = tmp_path / "items.npy", tmp_path / "outputs.npy"
    np.save(files[0], np.array(items, object))
    who = (plain | member, plain | {"RAY_AUTH_MODE": "disabled"}, plain | other)
    with cluster(who[0]) as address, ThreadPoolExecutor(3) as threads:
        there, *strangers = threads.map(lambda e: on_cluster(folder, e, address, *files), who)
    assert (there.returncode, there.stderr) == (0, b"")
    outputs = np.load(files[1], allow_pickle=True)
    assert compare(list(outputs), branches.expected(items)).equal
    for refused in strangers:
        printed_lines = refused.stderr.decode()
        assert refused.returncode == 1, printed_lines
        # Ray itself may write a line before.
        last = printed_lines.splitlines()[-1]
        assert last.startswith("autosplit: no Ray cluster at")
        assert means == "tls" or last.endswith("token of the cluster in ~/.ray/auth_token")
        assert re.search({"tls": "TLS|CERTIFICATE", "token": "token"}[means], printed_lines)

import contextlib
import json
import signal
import subprocess
import sys
import urllib.request

import pytest


@contextlib.contextmanager
def running(*arguments):
    command = [sys.executable, "-m", "autosplit", "dashboard", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.integration
@pytest.mark.usefixtures("finished")
def test_it_prints_the_url_serves_and_ends_with_130_when_interrupted():
    words = ["--port", "0", "-f", "json", "--allow-remote", "--host", "127.0.0.1"]
    with running("net.db", *words) as process:
        url = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        assert urllib.request.urlopen(url, timeout=60).status == 200
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert (process.returncode, rest) == (130, "")
    warning, interrupt = errors.splitlines()
    assert warning == "autosplit: everyone who can reach this address can read the study"
    assert interrupt == "autosplit: interrupted"

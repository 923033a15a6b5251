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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("missing.db", "does not exist"),
        ("missing.toml", "does not exist"),
        ("nobody --storage net.db", "holds no study 'nobody'; it holds net"),
        ("net.db --host 0.0.0.0", "add --allow-remote"),
        ("net.db --allow-remote", "needs --host ADDR"),
        ("net.db --port 99999", "give --port 1 to 65535"),
        ("bad:// --storage x", "://"),
    ],
)
@pytest.mark.usefixtures("finished")
def test_what_cannot_be_served_is_one_line_and_exit_2(said, words, says):
    code, line = said("dashboard", *words.split())
    assert (code, says in line) == (2, True)

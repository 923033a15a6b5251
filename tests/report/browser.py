"""Debian's chromium, driven over plain WebDriver: enough to open a page, run a script in it, and read its logs."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip


class Browser:
    """One session; ``call`` is a WebDriver command of the session."""

    def __init__(self, driver: str, profile: Path) -> None:
        options = {"binary": CHROMIUM, "args": [*_OPTIONS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = _post(f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
        self._url = f"{driver}/session/{session['sessionId']}"

    def open(self, url: str) -> None:
        _post(f"{self._url}/url", {"url": url})

    def run(self, script: str) -> Any:
        return _post(f"{self._url}/execute/sync", {"script": script, "args": []})

    def wait(self, script: str, seconds: float = 30) -> Any:
        """Run a script until it returns something true; what it returns last."""
        deadline = time.monotonic() + seconds
        while not (found := self.run(script)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def errors(self) -> list[str]:
        """What the console said at level SEVERE since the last call."""
        entries = _post(f"{self._url}/se/log", {"type": "browser"})
        return [e["message"] for e in entries if e["level"] == "SEVERE"]

    def requested(self) -> set[str]:
        """The origins of all requests since the last call, the browser's own pages left out."""
        entries = _post(f"{self._url}/se/log", {"type": "performance"})
        events = [json.loads(e["message"])["message"] for e in entries]
        urls = [
            e["params"]["request"]["url"]
            for e in events
            if e["method"] == "Network.requestWillBeSent"
        ]
        return {"/".join(u.split("/")[:3]) for u in urls if re.match(r"(https?|wss?|ftp):", u)}

    def view(self, width: int, dark: bool = False) -> None:
        """Look from a window of this width; below 600 px as a phone does."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._devtools("Emulation.setDeviceMetricsOverride", size)
        self._devtools("Emulation.setEmulatedMedia", {"features": scheme})

    def _devtools(self, command: str, values: dict[str, Any]) -> Any:
        return _post(f"{self._url}/goog/cdp/execute", {"cmd": command, "params": values})

    def picture(self, file: Path) -> None:
        with urllib.request.urlopen(f"{self._url}/screenshot", timeout=60) as answer:
            file.write_bytes(base64.b64decode(json.load(answer)["value"]))

    def close(self) -> None:
        request = urllib.request.Request(self._url, method="DELETE")
        urllib.request.urlopen(request, timeout=60).close()


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with a fresh profile below ``folder``; its driver ends with it."""
    assert DRIVER is not None
    process = subprocess.Popen(
        [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        port = next(
            m.group(1)
            for line in process.stdout
            if (m := re.search(r"started successfully on port (\d+)", line))
        )
        browser = Browser(f"http://127.0.0.1:{port}", folder / "profile")
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.wait(30)


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["value"]

"""Debian's chromium: opens a page, runs a script in it, and reads its logs."""

import contextlib
import importlib.resources
import json
import re
import shutil
import time

import pytest
from selenium import webdriver

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--window-size=1400,1000",
)  # fmt: skip

ROOT = "document.documentElement"
WIDER = f"return {ROOT}.scrollWidth - {ROOT}.clientWidth"  # what is cut off at the right


class Browser(webdriver.Chrome):
    """One session of the browser."""

    open, run = webdriver.Chrome.get, webdriver.Chrome.execute_script

    def wait(self, script, seconds=30):
        """Run a script until it returns something true; returns its last result."""
        deadline = time.monotonic() + seconds
        while not (result := self.run(script)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return result

    def accessibility(self):
        """The serious findings of axe-core on the page, with the elements they are about."""
        axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text()
        self.run(axe)
        results = self.execute_async_script("axe.run().then(arguments[0])")
        return [
            f"{finding['id']}: {node['html'][:120]}"
            for finding in results["violations"]
            if finding["impact"] in ("serious", "critical")
            for node in finding["nodes"]
        ]

    def press(self, selector, *keys):
        """Focus an element and type."""
        element = self.find_element("css selector", selector)
        self.run("arguments[0].focus()", element)
        for key in keys:
            self.switch_to.active_element.send_keys(key)

    def point(self, element):
        """Move the mouse over an element that a script returned."""
        webdriver.ActionChains(self).move_to_element(element).perform()

    def errors(self):
        """The messages of level SEVERE on the console since the last call."""
        entries = self.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def requested(self):
        """The origins of all requests since the last call, without the browser's own pages."""
        entries = self.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in entries]
        requests = [e for e in events if e["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in requests]
        return {"/".join(u.split("/")[:3]) for u in urls if re.match(r"(https?|wss?|ftp):", u)}

    def view(self, width, dark=False):
        """Look from a window of this width; below 600 px as a phone does."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})


@contextlib.contextmanager
def browsing(profile):
    """A browser with a fresh profile; skips the test where none is installed."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver: apt install chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*_OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # The path of the driver is given, so that selenium looks for none and downloads none.
    with Browser(options, webdriver.ChromeService(executable_path=DRIVER)) as browser:
        yield browser

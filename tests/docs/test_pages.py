"""Every command on every page of docs/ runs, in order, in an empty folder, as for a reader."""

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request

import pytest

from studies.tools.tables import SUMMARY
from tests.docs.pages import DOCS, ROOT, RUN, anchor_of, linked_pages, pages
from tests.study.server import postgresql

TIMEOUT = 900  # seconds a block may take
# On a page; a test puts its own server's address there.
ADDRESS = "postgresql+psycopg://USER@HOST/NAME"
PACKAGES = {
    "onnxruntime": "onnxruntime", "ray": "ray", "rpc": "tornado", "torch": "torch",
    "transformers": "transformers",
}  # fmt: skip
PROGRAMS = ("g++",)
LANGUAGES = {*RUN, "cpp", "toml", "text", "json", "mermaid"}


class Reader:
    """Somebody with an empty folder and a shell; what one block exports, the next one finds."""

    def __init__(self, folder, address=""):
        self.folder, self._address, self._printed = folder / "work", address, ""
        self.folder.mkdir()
        self._state = folder / "state.sh"
        self._state.write_text(f"cd {shlex.quote(str(self.folder))}\n")
        programs = folder / "bin"
        programs.mkdir()
        for name, arguments in {"python": "", "python3": "", "autosplit": "-m autosplit"}.items():
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
            program.chmod(0o755)
        inherited = {k: v for k, v in os.environ.items() if k != "AUTOSPLIT_STORAGE"}
        python_path = f"{ROOT}/tests/docs/impatient:{ROOT}"
        places = {"PYTHONPATH": python_path, "PATH": f"{programs}:{os.environ['PATH']}"}
        self._options = {"env": inherited | places, "text": True}

    def read(self, block):
        """Save the block or run it, as its marks say."""
        text = block.text.replace(ADDRESS, self._address) if self._address else block.text
        if name := block.marks.get("file"):
            (self.folder / name).write_text(text, encoding="utf-8")
        elif "prints" in block.marks:
            missing = shape_of(text) - shape_of(self._printed)
            assert not missing, f"{missing} is not printed:\n{self._printed}"
        elif block.runs:
            script = text if block.language == "sh" else f"python - <<'END'\n{text}END\n"
            if "serves" in block.marks:
                self._serve(script)
            else:
                self._run(script, int(block.marks.get("exit", 0)))

    def _command(self, script):
        return ["bash", "-eu", "-c", f". {shlex.quote(str(self._state))}\n{script}"]

    def _run(self, script, code):
        keep = f"{{ export -p; printf 'cd %q\\n' \"$PWD\"; }} > {shlex.quote(str(self._state))}"
        options = {"capture_output": True, "stdin": subprocess.DEVNULL, "timeout": TIMEOUT}
        done = subprocess.run(self._command(f"{script}\n{keep}"), **options, **self._options)
        assert done.returncode == code, f"{script}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        self._printed = done.stdout

    def _serve(self, script):
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        options = {**pipes, **self._options, "start_new_session": True}
        with subprocess.Popen(self._command(script), **options) as server:
            try:
                url = next((line.strip() for line in server.stdout if "http://" in line), "")
                assert url, server.communicate()
                with urllib.request.urlopen(url[url.index("http://") :], timeout=60) as answer:
                    assert answer.status == 200
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGINT)


def shape_of(text):
    """The lines without their numbers, spaces and runtimes."""
    lines = re.sub(r"\S*\d\S*|\b(tvm|onnxruntime|openvino)\b", "#", text).splitlines()
    return {" ".join(line.split()) for line in lines if line.strip()}


@contextlib.contextmanager
def needed(thing):
    """What a page needs: the address of a PostgreSQL server; a skip where something is missing."""
    if thing == "postgresql":
        with postgresql() as server:
            yield server.url
        return
    assert thing in ("", *PACKAGES, *PROGRAMS), f"tests know nothing of needs: {thing}"
    if thing in PROGRAMS and not shutil.which(thing):
        pytest.skip(f"{thing} is not installed")
    if thing in PACKAGES and not importlib.util.find_spec(PACKAGES[thing]):
        pytest.skip(f"{thing} is not installed")
    yield ""


def cases(slow):
    """The pages with something to run that is slow, or those with something that is not."""
    parameters = []
    for page in pages():
        running = [block for block in page.blocks() if block.runs]
        some = ["slow" in page.marks or "slow" in block.marks for block in running]
        if running and (any(some) if slow else not all(some)):
            # For pytest-xdist what stands before the last "::" is done in one process.
            parameters.append(pytest.param(page, id=f"{page.path.relative_to(DOCS)}::"))
    return parameters


def read_all(page, folder, leave_out=""):
    with needed(page.marks.get("needs", "")) as address:
        reader, left_out = Reader(folder, address), False
        for block in page.blocks():
            left_out = leave_out in block.marks or (left_out and "prints" in block.marks)
            if not left_out:
                reader.read(block)


@pytest.mark.integration
@pytest.mark.parametrize("page", cases(slow=False))
def test_the_commands_of_the_page_that_are_not_slow_run(page, tmp_path):
    read_all(page, tmp_path, leave_out="slow")


@pytest.mark.slow
@pytest.mark.parametrize("page", cases(slow=True))
def test_every_command_of_the_page_runs(page, tmp_path):
    read_all(page, tmp_path)


@pytest.mark.parametrize("page", linked_pages(), ids=lambda page: str(page.path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in page.links():
        target, _, anchor = link.partition("#")
        file = (page.path.parent / target).resolve() if target else page.path
        assert file.exists(), f"{page.path.name} links to {link}"
        headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE) if anchor else ()
        assert not anchor or anchor in map(anchor_of, headings), f"{page.path.name}: {link}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.path.stem)
def test_blocks_say_what_they_are(page):
    assert {block.language for block in page.blocks()} <= LANGUAGES
    reasons = [block.marks.get("not run", "-") for block in page.blocks()]
    assert all(reasons), "a block that is not run says why"


def test_the_index_and_the_summary_of_results_lead_to_every_page():
    indexes = [page for page in pages() if page.path in (DOCS / "README.md", SUMMARY)]
    links = [(page.path.parent, link) for page in indexes for link in page.links()]
    linked = {(folder / link.partition("#")[0]).resolve() for folder, link in links}
    assert {page.path for page in pages()} - {DOCS / "README.md"} <= linked

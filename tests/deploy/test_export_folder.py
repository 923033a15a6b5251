"""An export is replaced in one step: whoever is killed leaves the old one or the new one."""

import os
import subprocess
import sys
import tempfile

import pytest

from autosplit.deploy import manifest_file
from autosplit.deploy.export_folder import checked, replace_export
from autosplit.errors import ConfigError, MachineError, ModelError
from tests.deploy.exports import digest, sound

# Exports over an old export, killed before each call to the file system in turn, until one ends.
KILL = """
import itertools, os, signal, sys
from pathlib import Path
from tests.deploy.test_export_folder import write

CALLS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "fcntl.flock"}

def kill_at(last):
    calls = itertools.count(1)

    def hook(event, arguments):
        if event in CALLS and next(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)

for last in itertools.count(1):
    folder = Path(sys.argv[1], str(last))
    write(folder, "old")
    child = os.fork()
    if child == 0:
        kill_at(last)
        write(folder, "new")
        os._exit(0)
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        break
"""


def write(folder, content):
    """Export three stages that hold ``content`` and their numbers, and a program."""
    with replace_export(folder) as (new, suffix):
        document = sound()
        for index, entry in enumerate(document["stages"]):
            file = new / f"stage{index}{suffix}.so"
            file.write_text(f"{content} {index}")
            entry.update(file=file.name, sha256=digest(f"{content} {index}"))
        (new / "run.py").write_text("run")
        document["program"] = {"run.py": digest("run")}
        document["verdict"] = content
        parsed = manifest_file.Manifest.model_validate(document)
        manifest_file.write(parsed, new / "split.json")


def read(folder):
    """The content of an export whose files all are those of its manifest."""
    document = manifest_file.read(folder)
    for name, sha256 in document.files.items():
        checked(folder, name, sha256)
    return document.verdict


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_an_export_has_plain_names_that_all_can_read_whatever_a_killed_one_left(tmp_path):
    leftover = tmp_path / "deep" / "out" / ".autosplit-export-1"
    leftover.mkdir(parents=True)
    (leftover / "stage0.so").write_text("half")
    write(folder := tmp_path / "deep" / "out", "new")
    write(tmp_path / "new", "new")
    plain = ["run.py", "split.json", "stage0.so", "stage1.so", "stage2.so"]
    assert names(folder) == names(tmp_path / "new") == plain
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}


def test_an_export_replaces_the_one_before_and_nothing_else(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    before = set()
    for content in ("old", "new", "newer", "newest"):
        write(tmp_path, content)
        assert read(tmp_path) == content
        stages = {file.name for file in tmp_path.glob("stage*.so")}
        # A reader of the manifest before finds its files until the new one is there.
        assert not stages & before
        before = stages
    assert before == {"stage0-2.so", "stage1-2.so", "stage2-2.so"}
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("name", "text"), [("stage0.so", "mine"), ("split.json", '{"a": []}')])
def test_a_file_that_is_no_exports_is_not_written_over(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{name}' was not written by an export; choose another"):
        write(tmp_path, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, text)]


@pytest.mark.parametrize("program", [{}, {"run.py": digest("run")}])
@pytest.mark.parametrize("end", [None, -2])
def test_a_file_beside_an_export_is_not_written_over_by_a_program(tmp_path, program, end):
    write(tmp_path, "old")
    native = manifest_file.read(tmp_path).model_copy(update={"program": program})
    manifest_file.write(native, tmp_path / "split.json")
    text = (tmp_path / "split.json").read_text()[:end]
    (tmp_path / "split.json").write_text(text)
    (tmp_path / "run.py").write_text("mine")
    with pytest.raises(ConfigError, match=r"run\.py' was not written by an export"):
        write(tmp_path, "new")
    assert (tmp_path / "split.json").read_text() == text
    assert (tmp_path / "run.py").read_text() == "mine"


def test_an_export_that_fails_leaves_the_old_one(tmp_path):
    write(tmp_path, "old")
    before = names(tmp_path)
    with pytest.raises(ModelError, match="half"), replace_export(tmp_path) as (new, _):  # noqa: PT012
        (new / "stage0.so").write_text("half")
        raise ModelError("half")
    assert names(tmp_path) == before
    with pytest.raises(KeyboardInterrupt), replace_export(tmp_path / "other"):
        raise KeyboardInterrupt
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damaged", ["split.json", "stage1.so"])
def test_a_damaged_export_is_replaced(tmp_path, damaged):
    write(tmp_path, "old")
    (tmp_path / damaged).write_text("{")
    write(tmp_path, "new")
    assert read(tmp_path) == "new"


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"),
     MachineError("linking failed: final link failed: No space left on device"),
     RuntimeError("TVMError: cannot write: No space left on device"),
     OSError(122, "Disk quota exceeded")],
)  # fmt: skip
def test_a_full_disk_is_named_however_it_is_reported(tmp_path, error):
    text = r"out': (No space left|Disk quota).*; free the disk"
    with pytest.raises(MachineError, match=text), replace_export(tmp_path / "out"):
        raise error


def test_a_full_disk_is_named_by_the_cause_and_by_the_place_it_tells(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    full = OSError(28, "voll", str(tmp_path / "tmp" / "x.o"))
    text = r"tmp': No space left on device; free the disk.* with TMPDIR"
    with pytest.raises(MachineError, match=text), replace_export(tmp_path / "out"):
        raise RuntimeError("compilation failed") from full


@pytest.mark.parametrize("name", ["file", "file/out", "n" * 300])
def test_a_place_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="cannot write"):
        write(tmp_path / name, "new")


@pytest.mark.parametrize("changed", [False, True])
def test_a_file_of_an_old_program_goes_unless_somebody_changed_it(tmp_path, changed):
    """It need not be one that this version writes."""
    write(tmp_path, "old")
    document = manifest_file.read(tmp_path)
    program = {"run.sh": digest("mine")}
    manifest_file.write(document.model_copy(update={"program": program}), tmp_path / "split.json")
    (tmp_path / "run.sh").write_text("yours" if changed else "mine")
    write(tmp_path, "new")
    assert (tmp_path / "run.sh").exists() == changed


def test_an_old_file_outside_the_folder_stays(tmp_path):
    (tmp_path / "a.so").write_text("old 0")
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "stage0.so").unlink()
    (tmp_path / "out" / "stage0.so").symlink_to(tmp_path / "a.so")
    write(tmp_path / "out", "new")
    assert (tmp_path / "a.so").read_text() == "old 0"


@pytest.fixture
def code(tmp_path):
    """A folder with a file that holds ``code``."""
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "a.so").write_text("code")
    return folder


def test_another_content_is_refused_with_both_digests(code):
    with pytest.raises(ConfigError, match=f"{digest('code')[:12]}…, .* {digest('other')[:12]}…"):
        checked(code, "a.so", digest("other"))


@pytest.mark.parametrize(
    ("name", "text"),
    [("absent.so", "is missing"), ("loop", "symbolic links"), ("n" * 5000, "too long"),
     *((name, "not a regular file") for name in ("folder", "pipe")),
     *((name, "is outside the folder") for name in ("b.so", "c.so", "sub/out.so"))],
)  # fmt: skip
def test_anything_but_a_regular_file_of_the_folder_is_refused(code, tmp_path, name, text):
    (code / "folder").mkdir()
    os.mkfifo(code / "pipe")
    (tmp_path / "out.so").write_text("code")
    links = {"loop": "loop", "b.so": tmp_path / "out.so", "c.so": "b.so", "sub": tmp_path}
    for link, target in links.items():
        (code / link).symlink_to(target)
    with pytest.raises(ConfigError, match=f"{text}.*; export the split again"):
        checked(code, name, digest("code"))


def test_a_link_inside_the_folder_is_followed(code, tmp_path):
    (code / "b.so").symlink_to("a.so")
    (tmp_path / "around").symlink_to(code)
    for folder, name in ((code, "b.so"), (tmp_path / "around", "a.so")):
        assert checked(folder, name, digest("code")).read_text() == "code"


@pytest.mark.integration
def test_a_kill_leaves_the_old_export_or_the_new_one(tmp_path):
    subprocess.run([sys.executable, "-c", KILL, tmp_path], check=True, timeout=100)
    folders = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    assert len(folders) > 20
    contents = [read(folder) for folder in folders]
    assert contents == sorted(contents, reverse=True)  # old until the switch, then new
    assert set(contents) == {"old", "new"}
    for folder in folders:
        write(folder, "newer")
        assert read(folder) == "newer"
        assert not list(folder.glob(".*"))

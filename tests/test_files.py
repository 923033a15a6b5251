import os

import pytest

from autosplit import files
from autosplit.errors import MachineError, ModelError


def test_a_failed_write_keeps_the_old_content(tmp_path):
    (tmp_path / "f.json").write_text("old")
    with pytest.raises(ModelError), files.atomic_write(tmp_path / "f.json") as file:  # noqa: PT012
        file.write_text("half")
        raise ModelError("no")
    assert [(f.name, f.read_text()) for f in tmp_path.iterdir()] == [("f.json", "old")]


def test_the_content_is_stored_before_the_rename(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    monkeypatch.setattr(os, "replace", lambda old, new: calls.append("replace"))
    with files.atomic_write(tmp_path / "f.json") as temporary:
        temporary.write_text("new")
    assert calls == ["fsync", "replace"]


def test_the_temporary_file_lies_beside_the_file_with_its_suffix(tmp_path):
    name = f"{'n' * 251}.png"
    with files.atomic_write(tmp_path / name) as temporary:
        assert (temporary.suffix, temporary.parent) == (".png", tmp_path)
        temporary.write_text("x")
    assert [f.name for f in tmp_path.iterdir()] == [name]


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused = pytest.raises(MachineError, match="not a regular file")
    with refused, files.atomic_write(tmp_path / "pipe") as file:
        file.write_text("x")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path):
    with (
        pytest.raises(MachineError, match=r"'.*f\.o': No space left on device"),
        files.atomic_write(tmp_path / "f.o"),
        open("/dev/full", "w") as full,
    ):
        full.write("x" * 100_000)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_file_has_the_rights_of_new_files(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with files.atomic_write(tmp_path / "f.o") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert (tmp_path / "f.o").stat().st_mode & 0o777 == mode

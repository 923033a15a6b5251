"""Files of an export are copied while they are checked, and only regular ones inside the folder."""

import os

import pytest

from autosplit.deploy.private_copy import copy_checked
from autosplit.errors import ConfigError, MachineError
from tests.deploy.manifests import digest


@pytest.fixture
def export(tmp_path):
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "a.so").write_text("code")
    return folder


@pytest.fixture
def copy(export, tmp_path):
    """Copy a file of the export that was recorded with the content ``code``."""

    def run(name, folder=export, content="code"):
        return copy_checked(folder, name, digest(content), tmp_path / "private")

    return run


def test_the_copy_has_the_recorded_content(export, copy, tmp_path):
    (export / "deep").mkdir()
    (export / "deep" / "b.so").write_text("code")
    assert copy("deep/b.so") == tmp_path / "private" / "deep" / "b.so"
    assert copy("deep/b.so").read_text() == "code"


def test_another_content_is_refused_with_both_digests(copy):
    with pytest.raises(ConfigError, match=f"{digest('code')[:12]}…, .* {digest('other')[:12]}…"):
        copy("a.so", content="other")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("absent.so", "is missing"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
        ("loop", "symbolic links"),
        ("n" * 5000, "too long"),
    ],
)
def test_anything_but_a_regular_file_is_refused(export, copy, name, text):
    (export / "folder").mkdir()
    os.mkfifo(export / "pipe")
    (export / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=f"{text}.*; export the split again"):
        copy(name)


@pytest.mark.parametrize("link", ["file", "folder", "chain"])
def test_no_link_leads_out_of_the_folder(export, copy, tmp_path, link):
    (tmp_path / "out.so").write_text("code")
    if link == "folder":
        (export / "sub").symlink_to(tmp_path)
    else:
        (export / "b.so").symlink_to(tmp_path / "out.so")
        (export / "c.so").symlink_to("b.so")
    name = {"file": "b.so", "folder": "sub/out.so", "chain": "c.so"}[link]
    with pytest.raises(ConfigError, match="is outside the folder"):
        copy(name)


def test_a_link_inside_the_folder_is_followed(export, copy, tmp_path):
    (export / "b.so").symlink_to("a.so")
    (tmp_path / "around").symlink_to(export)
    assert copy("b.so").read_text() == "code"
    assert copy("a.so", folder=tmp_path / "around").read_text() == "code"


def test_a_full_temporary_disk_is_named_with_the_remedy(export, monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    (export / "full").write_text("code" * 100_000)
    private = export.parent / "private"
    private.mkdir()
    (private / "full").symlink_to("/dev/full")
    with pytest.raises(MachineError, match=r"private/full': No space left on device; .*TMPDIR"):
        copy_checked(export, "full", digest("code" * 100_000), private)

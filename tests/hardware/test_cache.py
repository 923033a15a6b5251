import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ModelError
from autosplit.hardware import cache


def writes(text):
    return lambda path: path.write_text(text)


def fails(path):
    path.write_text("half")
    raise ModelError("no")


def test_a_file_is_made_once_and_making_that_fails_leaves_nothing(tmp_path):
    file = tmp_path / "deep" / "kept.o"
    with pytest.raises(ModelError):
        cache.keep(file, fails)
    assert list(file.parent.iterdir()) == []
    assert cache.keep(file, writes("first")).read_text() == "first"
    assert cache.keep(file, fails).read_text() == "first"


@pytest.mark.parametrize(
    ("name", "damage"),
    [*(("kept.o", damage) for damage in (b"", b"fir", b"First", b"first\0")),
     *(("kept.o.sha256", damage) for damage in (b"", b"\xff\xfe", b"0" * 64))],
)  # fmt: skip
def test_a_file_that_is_not_that_of_its_digest_is_made_again(tmp_path, name, damage):
    file = cache.keep(tmp_path / "kept.o", writes("first"))
    (tmp_path / name).write_bytes(damage)
    assert cache.keep(file, writes("again")).read_text() == "again"
    (tmp_path / "kept.o.sha256").unlink()
    assert cache.keep(file, writes("third")).read_text() == "third"
    assert cache.keep(file, fails).read_text() == "third"


def test_the_folder_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path / "mine"))
    assert cache.folder() == tmp_path / "mine"
    monkeypatch.delenv("AUTOSPLIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache.folder() == tmp_path / "autosplit"


def test_two_processes_that_make_the_same_file_both_get_a_whole_one(tmp_path):
    code = (
        "import sys, pathlib; from autosplit.hardware import cache\n"
        "for i in range(30):\n"
        "    path = pathlib.Path(sys.argv[1]) / f'{i}.bin'\n"
        "    file = cache.keep(path, lambda p: p.write_bytes(sys.argv[2].encode() * 50000))\n"
        "    assert len(set(file.read_bytes())) == 1 and file.stat().st_size == 50000\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, tmp_path, letter]) for letter in "ab"]
    assert [p.wait(60) for p in both] == [0, 0]


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_other_parts_have_another_digest(first, second):
    assert (cache.digest(*first) == cache.digest(*second)) == (first == second)

"""Stores of pictures: drawn once, kept while there is room, found by their identity."""

import io

import pytest

from autosplit.report.dashboard import artifacts
from autosplit.report.dashboard.artifacts import LazyPictures, PictureFolder, identity


def counted(data=b"png"):
    calls = []
    return calls, lambda: calls.append(1) or data


def test_equal_values_have_one_identity_and_others_another():
    assert identity("net", 1, (2.0,)) == identity("net", 1, (2.0,))
    assert (
        len(
            {
                identity("a", "b"),
                identity("ab"),
                identity("a", "b", ""),
                identity("b", "a"),
                identity(1),
                identity("1"),
            }
        )
        == 6
    )


def test_a_picture_is_drawn_when_it_is_read_and_only_then():
    calls, draw = counted()
    store = LazyPictures()
    store.put("id", draw)
    assert not calls
    assert [store.open_reader("id").read() for _ in range(3)] == [b"png"] * 3
    assert len(calls) == 1


def test_the_pictures_read_longest_ago_are_drawn_again(monkeypatch):
    monkeypatch.setattr(artifacts, "_CACHED_PICTURES", 2)
    store, draws = LazyPictures(), {name: counted() for name in "abc"}
    for name, (_, draw) in draws.items():
        store.put(name, draw)
    for name in "abaca":  # a stays in use, so b goes when c comes
        store.open_reader(name)
    store.open_reader("b")
    assert {name: len(calls) for name, (calls, _) in draws.items()} == {"a": 1, "b": 2, "c": 1}


def test_what_was_never_put_or_was_removed_is_not_found():
    from optuna.artifacts.exceptions import ArtifactNotFound

    store = LazyPictures()
    store.write("id", io.BytesIO(b"picture"))
    assert store.open_reader("id").read() == b"picture"
    store.remove("id")
    store.remove("id")
    for name in ("id", "other"):
        with pytest.raises(ArtifactNotFound, match=name):
            store.open_reader(name)


def test_a_folder_draws_what_it_does_not_hold_yet(tmp_path):
    calls, draw = counted()
    for _ in range(2):
        PictureFolder(tmp_path / "deep" / "pictures").put(identity("x"), draw)
    assert len(calls) == 1
    assert (
        PictureFolder(tmp_path / "deep" / "pictures").store.open_reader(identity("x")).read()
        == b"png"
    )

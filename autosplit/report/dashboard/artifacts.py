"""Artifact stores for the dashboard's pictures: drawn when first looked at, or kept in a folder."""

from __future__ import annotations

import io
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from optuna.artifacts import FileSystemArtifactStore

Draw = Callable[[], bytes]

_CACHED_PICTURES = 256  # in memory, about 30 MB
_NAMESPACE = uuid.UUID("7ad2f8f6-2d0a-5c58-9f3a-6d5f3c1c9a51")


class Pictures(Protocol):
    """An artifact store that pictures can be put into under a known identity."""

    def put(self, identity: str, draw: Draw) -> None:
        """Offer a picture; the same identity always stands for the same picture."""


def identity(*parts: object) -> str:
    """The identity of a picture that is drawn from these values; equal values, equal identity."""
    return str(uuid.uuid5(_NAMESPACE, repr(parts)))


class LazyPictures:
    """An artifact store in memory that draws a picture when it is read, and caches the latest."""

    def __init__(self) -> None:
        self._draw: dict[str, Draw] = {}
        self._cache: dict[str, bytes] = {}  # the least recently read first
        self._lock = threading.Lock()

    def put(self, identity: str, draw: Draw) -> None:
        """Offer a picture; it is drawn when somebody looks."""
        self._draw[identity] = draw

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """The picture's bytes. Raises Optuna's ArtifactNotFound if none was put."""
        from optuna.artifacts.exceptions import ArtifactNotFound

        if artifact_id not in self._draw:
            raise ArtifactNotFound(f"no picture {artifact_id}")
        with self._lock:
            picture = self._cache.pop(artifact_id, None) or self._draw[artifact_id]()
            self._cache[artifact_id] = picture
            while len(self._cache) > _CACHED_PICTURES:
                del self._cache[next(iter(self._cache))]
        return io.BytesIO(picture)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Take a picture that is already drawn."""
        picture = content_body.read()
        self.put(artifact_id, lambda: picture)

    def remove(self, artifact_id: str) -> None:
        """Forget a picture."""
        self._draw.pop(artifact_id, None)
        self._cache.pop(artifact_id, None)


class PictureFolder:
    """Pictures as files in a folder, in the layout of Optuna's own file store; each drawn once."""

    def __init__(self, folder: Path) -> None:
        from optuna.artifacts import FileSystemArtifactStore

        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.store: FileSystemArtifactStore = FileSystemArtifactStore(folder)

    def put(self, identity: str, draw: Draw) -> None:
        """Draw a picture into the folder if it is not there yet."""
        if not (self._folder / identity).exists():
            self.store.write(identity, io.BytesIO(draw()))

"""Where the dashboard's pictures come from: drawn when they are first looked at, or from a folder."""

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

_KEPT = 256  # pictures held in memory, about 30 MB
_NAMESPACE = uuid.UUID("7ad2f8f6-2d0a-5c58-9f3a-6d5f3c1c9a51")


class Pictures(Protocol):
    """An artifact store that pictures can be put into under a known identity."""

    def put(self, identity: str, draw: Draw) -> None:
        """Offer a picture; the same identity always stands for the same picture."""
        ...


def identity(*parts: object) -> str:
    """The identity of a picture that is drawn from these values; equal values, equal identity."""
    return str(uuid.uuid5(_NAMESPACE, repr(parts)))


class Drawn:
    """An artifact store in memory that draws a picture when it is read and keeps the latest ones."""

    def __init__(self) -> None:
        self._draw: dict[str, Draw] = {}
        self._kept: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, identity: str, draw: Draw) -> None:
        """Offer a picture; it is drawn when somebody looks."""
        self._draw[identity] = draw

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """The picture's bytes; raises Optuna's ArtifactNotFound where none was put."""
        from optuna.artifacts.exceptions import ArtifactNotFound

        if artifact_id not in self._draw:
            raise ArtifactNotFound(f"no picture {artifact_id}")
        with self._lock:
            data = self._kept.pop(artifact_id, None) or self._draw[artifact_id]()
            self._kept[artifact_id] = data
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return io.BytesIO(data)

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Take a picture that is already drawn."""
        data = content_body.read()
        self.put(artifact_id, lambda: data)

    def remove(self, artifact_id: str) -> None:
        """Forget a picture."""
        self._draw.pop(artifact_id, None)
        self._kept.pop(artifact_id, None)


class Folder:
    """Pictures as files in a folder, as Optuna's own file store keeps artifacts; drawn once."""

    def __init__(self, folder: Path) -> None:
        from optuna.artifacts import FileSystemArtifactStore

        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.store: FileSystemArtifactStore = FileSystemArtifactStore(folder)

    def put(self, identity: str, draw: Draw) -> None:
        """Draw a picture into the folder where it is not there yet."""
        if not (self._folder / identity).exists():
            self.store.write(identity, io.BytesIO(draw()))

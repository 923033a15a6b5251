"""A folder whose export is replaced in one step: a reader sees the old one or the new one.

New files lie in a hidden folder until all are written, and get names that the old export does not
use. Then they move beside the old files, and the rename of ``split.json`` switches from one export
to the other. Only after that the old files go. A process that is killed leaves at most files that
no manifest names; the next export removes its hidden folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.manifest import NAME
from autosplit.deploy.targets.program import written_programs
from autosplit.errors import ConfigError
from autosplit.files import REMEDY, refused, replace

_HIDDEN = ".autosplit-export-"
_FULL = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}


@dataclass(frozen=True)
class NewExport:
    """An export that is being written into the hidden ``folder``."""

    folder: Path
    suffix: str

    def file(self, stem: str, extension: str) -> Path:
        """Where to write a file; its name is none of the old export's."""
        return self.folder / f"{stem}{self.suffix}{extension}"

    def numbered(self, stem: str, extension: str) -> Iterator[Path]:
        """Where to write several files: ``stem``, ``stem_1``, ``stem_2`` and so on."""
        yield self.file(stem, extension)
        for number in count(1):
            yield self.file(f"{stem}_{number}", extension)


@contextlib.contextmanager
def replace_export(folder: Path) -> Iterator[NewExport]:
    """Write an export that replaces the one in ``folder`` when the block ends without an error.

    Files that belong to no export stay where they are. Raises MachineError where the disk refuses.
    """
    is_new = not os.path.exists(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder), tempfile.TemporaryDirectory(prefix=_HIDDEN, dir=folder) as hidden:
            _remove_leftovers(folder, Path(hidden))
            old_names = _exported_names(folder)
            new = NewExport(Path(hidden), _free_suffix(old_names))
            yield new
            _switch(new.folder, folder, old_names | written_programs(folder))
    except Exception as error:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        _raise_if_full(error, folder)
        if isinstance(error, OSError):
            raise refused(folder, error) from error
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One exporter at a time; the system ends the lock of one that is killed."""
    with _descriptor(folder) as descriptor:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _remove_leftovers(folder: Path, hidden: Path) -> None:
    for leftover in folder.glob(f"{_HIDDEN}*"):
        if leftover != hidden:
            shutil.rmtree(leftover, ignore_errors=True)


def _exported_names(folder: Path) -> set[str]:
    """The files of the export that is in ``folder``; none where it cannot be read."""
    try:
        return set(manifest_file.read(folder).files)
    except ConfigError:
        return set()


def _free_suffix(old_names: set[str]) -> str:
    """Two generations alternate: stage0.so, stage0-2.so, stage0.so again."""
    used = set()
    for name in old_names:
        generation = re.search(r"-\d+$", name.partition(".")[0])
        used.add(generation[0] if generation else "")
    suffix, number = "", 1
    while suffix in used:
        number += 1
        suffix = f"-{number}"
    return suffix


def _switch(hidden: Path, folder: Path, old_names: set[str]) -> None:
    new_names = {file.name for file in hidden.iterdir()} - {NAME}
    for name in sorted(new_names):
        replace(hidden / name, folder / name)
    with _descriptor(folder) as descriptor:
        # The files are on the disk before the manifest that names them, and it before they go.
        os.fsync(descriptor)
        replace(hidden / NAME, folder / NAME)
        os.fsync(descriptor)
    # A pipeline that was loaded before has its own copies, so nobody reads the old files.
    for name in old_names - new_names - {NAME}:
        # Nothing outside the folder is deleted, whatever an old manifest names.
        if (folder / name).parent.resolve() == folder.resolve():
            (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _descriptor(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _raise_if_full(error: BaseException, folder: Path) -> None:
    """Raises MachineError naming the disk where that is what an error came from.

    TVM and the linker report a full disk as text, in errors of their own.
    """
    cause: BaseException | None = error
    while cause:
        for number, text in _FULL.items():
            if text in str(cause) or getattr(cause, "errno", None) == number:
                full = OSError(number, text)
                # Python uses another folder than TMPDIR, which the linker uses, where that is full.
                for temporary in (os.environ.get("TMPDIR"), tempfile.gettempdir()):
                    if temporary and temporary in str(cause) and str(folder) not in str(cause):
                        raise refused(Path(temporary), full, f"{REMEDY} with TMPDIR") from error
                raise refused(folder, full) from error
        cause = cause.__cause__

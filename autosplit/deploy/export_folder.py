"""The files of an export: checked against their digests when read, and replaced in one step.

New files are written to a hidden folder, under names that the old export does not use. When all are
written, they are moved beside the old files, and the rename of ``split.json`` switches from the old
export to the new one. Only then are the old files removed. A process that is killed leaves at most
files that no manifest names; the next export removes its hidden folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.manifest import NAME
from autosplit.errors import ConfigError
from autosplit.files import REMEDY, refused, replace, sha256

_HIDDEN = ".autosplit-export-"
_FULL = {"No space left on device": errno.ENOSPC, "Disk quota exceeded": errno.EDQUOT}


def checked(folder: Path, name: str, digest: str) -> Path:
    """Check a file of an export; returns its path.

    Raises ConfigError where its content differs from ``digest``, for anything but a regular file
    and for a link out of the folder.
    """
    file = Path(os.path.realpath(folder / name))
    if not file.is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"'{name}' is outside the folder '{folder}'; export the split again")
    try:
        present = sha256(file)
    except FileNotFoundError as error:
        raise ConfigError(f"'{folder / name}' is missing; export the split again") from error
    except OSError as error:
        problem = f"'{folder / name}' cannot be read ({error.strerror}); export the split again"
        raise ConfigError(problem) from error
    if present != digest:
        raise ConfigError(
            f"'{folder / name}' has sha256 {present[:12]}…, recorded is {digest[:12]}…; "
            "it was changed, export it again"
        )
    return file


@contextlib.contextmanager
def replace_export(folder: Path) -> Iterator[tuple[Path, str]]:
    """Write an export that replaces the one in ``folder`` when the block ends without an error.

    Yields a hidden folder to write into and a suffix for the names of all files but ``split.json``,
    so that they differ from those of the old export. Files that belong to no export stay where they
    are. Raises MachineError where the disk refuses.
    """
    is_new = not os.path.exists(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder), tempfile.TemporaryDirectory(prefix=_HIDDEN, dir=folder) as hidden:
            for leftover in folder.glob(f"{_HIDDEN}*"):
                if leftover != Path(hidden):
                    shutil.rmtree(leftover, ignore_errors=True)
            old_files: Mapping[str, str] = {}
            with contextlib.suppress(ConfigError):  # none is there, or one that cannot be read
                old_files = manifest_file.read(folder).files
            # Two generations alternate: stage0.so, stage0-2.so, stage0.so again.
            yield Path(hidden), "-2" if old_files and "-2" not in " ".join(old_files) else ""
            _switch(Path(hidden), folder, old_files)
    except BaseException as error:
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        _raise_if_full(error, folder)
        if isinstance(error, OSError):
            raise refused(folder, error) from error
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process export at a time; the system releases the lock of a killed process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_replaceable(folder: Path) -> None:
    """Raise MachineError or ConfigError for a folder that takes no export."""
    if os.path.lexists(folder) and not os.access(f"{folder}/", os.W_OK):
        raise refused(folder, PermissionError(errno.EACCES, "not a folder that can be written"))
    content = (folder / NAME).read_bytes().strip() if os.path.isfile(folder / NAME) else b"{}"
    # A whole document of no format is somebody's own; a damaged manifest lacks its end.
    is_export = re.search(rb'"format"\s*:\s*\d', content) or not content.endswith((b"}", b"]"))
    if os.path.lexists(folder / NAME) and not is_export:
        raise ConfigError(f"'{folder / NAME}' was not written by an export; choose another folder")


def _switch(hidden: Path, folder: Path, old_files: Mapping[str, str]) -> None:
    new_names = sorted(file.name for file in hidden.iterdir() if file.name != NAME)
    # A killed export may have left files, but one with a program's name may be somebody's own.
    program = manifest_file.read(hidden).program
    require_replaceable(folder)
    names = {*program} if os.path.lexists(folder / NAME) else {*new_names}
    present = [name for name in sorted(names) if os.path.lexists(folder / name)]
    foreign = [n for n in present if sha256(folder / n) not in (program.get(n), old_files.get(n))]
    if foreign:
        problem = f"'{folder / foreign[0]}' was not written by an export; choose another folder"
        raise ConfigError(problem)
    for name in (*new_names, NAME):
        replace(hidden / name, folder / name)
    for name, digest in old_files.items():
        # A file that somebody changed, or whose name leads out of the folder, stays.
        with contextlib.suppress(ConfigError):
            if name not in new_names:
                checked(folder, name, digest)
                (folder / name).unlink()


def _raise_if_full(error: BaseException, folder: Path) -> None:
    """Raises MachineError, naming the disk, where a full disk caused an error.

    TVM and the linker report a full disk as text, in errors of their own.
    """
    cause: BaseException | None = error
    while cause:
        for text, number in _FULL.items():
            if text in str(cause) or getattr(cause, "errno", None) == number:
                full, temporary = OSError(number, text), tempfile.gettempdir()
                if temporary in str(cause) and str(folder) not in str(cause):
                    raise refused(Path(temporary), full, f"{REMEDY} with TMPDIR") from error
                raise refused(folder, full) from error
        cause = cause.__cause__

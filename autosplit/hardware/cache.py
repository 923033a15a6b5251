"""Files made once and kept: written beside and renamed, so that two processes and a full disk leave no half file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from autosplit.errors import MachineError


def folder() -> Path:
    """The cache folder: ``AUTOSPLIT_CACHE``, else the user's cache folder. It need not exist."""
    import platformdirs

    return Path(
        os.environ.get("AUTOSPLIT_CACHE")
        or platformdirs.user_cache_dir("autosplit", appauthor=False)
    )


def keep(file: Path, make: Callable[[Path], object]) -> Path:
    """``file``, made by ``make(temporary)`` if it is not there whole; a digest beside it tells a damaged one.

    Raises MachineError where the cache cannot be written.
    """
    if not _is_whole(file):
        with writing(file) as temporary:
            make(temporary)
            digest = sha256(temporary)
        with writing(_digest_of(file)) as temporary:
            temporary.write_text(digest, encoding="ascii")
    return file


@contextlib.contextmanager
def writing(file: Path) -> Iterator[Path]:
    """A temporary path that becomes ``file`` when the block ends well, and goes away when it does not.

    Raises MachineError where the disk refuses.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            prefix=f".{file.stem[:40]}-", suffix=file.suffix, dir=file.parent
        )
    except OSError as error:
        raise _refused(file, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        raise _refused(file, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _refused(file: Path, error: OSError) -> MachineError:
    by = " with AUTOSPLIT_CACHE" if file.is_relative_to(folder()) else ""
    return MachineError(
        f"cannot write '{file}': {error.strerror}; free the disk or choose another folder{by}"
    )


def sha256(file: Path) -> str:
    """The hex digest of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(*parts: str) -> str:
    """A short key (20 hex digits) of some strings, none of which runs into the next."""
    return hashlib.sha256("\0".join(f"{len(p)}:{p}" for p in parts).encode()).hexdigest()[:20]


def _is_whole(file: Path) -> bool:
    try:
        return _digest_of(file).read_text(encoding="ascii") == sha256(file)
    except (OSError, UnicodeDecodeError):
        return False


def _digest_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")

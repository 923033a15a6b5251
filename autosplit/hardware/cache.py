"""File cache: concurrent processes and a full disk never leave a partial file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from autosplit.files import REMEDY, atomic_write, sha256


def folder() -> Path:
    """The cache folder: ``AUTOSPLIT_CACHE``, else the user's cache folder. It need not exist."""
    import platformdirs

    return Path(
        os.environ.get("AUTOSPLIT_CACHE")
        or platformdirs.user_cache_dir("autosplit", appauthor=False)
    )


def keep(file: Path, make: Callable[[Path], object], again: bool = False) -> Path:
    """Return ``file``; ``make(temporary)`` makes it if it is absent or differs from its digest.

    ``again`` makes it in any case.

    Raises MachineError where the cache cannot be written.
    """
    if again or not is_whole(file):
        remedy = f"{REMEDY} with AUTOSPLIT_CACHE" if file.is_relative_to(folder()) else REMEDY
        # A file that a power cut truncates does not match its digest.
        with atomic_write(file, remedy, durable=False) as temporary:
            make(temporary)
            content = sha256(temporary)
        with atomic_write(_digest_of(file), remedy, durable=False) as temporary:
            temporary.write_text(content, encoding="ascii")
    return file


def digest(*parts: str) -> str:
    """A short key (20 hex digits) of some strings; it also depends on where each string ends."""
    return hashlib.sha256("\0".join(f"{len(p)}:{p}" for p in parts).encode()).hexdigest()[:20]


def is_whole(file: Path) -> bool:
    """Whether a file of the cache exists and matches its digest file."""
    try:
        return _digest_of(file).read_text(encoding="ascii") == sha256(file)
    except (OSError, UnicodeDecodeError):
        return False


def _digest_of(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")

"""Atomic writes and digests of files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from autosplit.errors import ConfigError, MachineError

REMEDY = "free the disk or choose another folder"


@contextlib.contextmanager
def atomic_write(file: Path, remedy: str = REMEDY, durable: bool = True) -> Iterator[Path]:
    """A temporary path beside ``file`` that replaces it when the block ends without an error.

    Another process or a full disk never leaves a partial file, nor does a power cut unless
    ``durable`` is False. Raises MachineError with ``remedy`` if the file cannot be written.
    """
    temporary = file.parent / f".{file.stem[:40]}-{secrets.token_hex(8)}{file.suffix}"
    try:
        if file.exists() and not file.is_file():  # a device would be replaced
            raise OSError(errno.EINVAL, "not a regular file")
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
        yield temporary
        replace(temporary, file, durable)
    except OSError as error:
        raise refused(file, error, remedy) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def replace(temporary: Path, file: Path, durable: bool = True) -> None:
    """Store ``temporary`` on the disk, make it non-executable, and rename it to ``file``."""
    with temporary.open("rb") as stream:
        if durable:
            # If it were renamed before it is stored, a power cut could leave an empty file.
            os.fsync(stream.fileno())
        # A linker marks its output as executable, but a stage is not a program.
        os.fchmod(stream.fileno(), os.fstat(stream.fileno()).st_mode & 0o666)
    os.replace(temporary, file)


def refused(path: Path, error: OSError, remedy: str = REMEDY) -> MachineError:
    """The error for a path that cannot be written."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        remedy = remedy.removeprefix("free the disk or ")
    return MachineError(f"cannot write '{path}': {error.strerror or error}; {remedy}")


def require_path(path: Path) -> None:
    """Raise ConfigError for an invalid path: with a null character, or not in UTF-8."""
    try:
        os.lstat(str(path.absolute()).encode())  # a runtime opens no other name
    except OSError:  # a path that does not exist yet
        return
    except ValueError as error:
        raise ConfigError(f"{str(path)!a} is no valid path ({error}); choose another") from error


def require_other(file: Path, *inputs: str | Path | None) -> None:
    """Raise ConfigError for a file to write that is one of the inputs, by whatever name."""
    for each in inputs:
        if each and os.path.exists(file) and os.path.exists(each) and os.path.samefile(file, each):
            raise ConfigError(f"'{file}' is read here; name another file to write")


def open_regular(file: Path) -> BufferedReader:
    """Open a file for reading. Raises OSError for anything but a regular file, such as a pipe."""
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def sha256(file: Path) -> str:
    """The hex digest of a regular file's content. Raises OSError."""
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
